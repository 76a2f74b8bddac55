"""Plain SGD with a learning rate copied from another project."""
# run: status=critical steps=160
# when: thorough
# findings: lr-too-high
import torch
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(1024, 20)
labels = (inputs @ torch.randn(20, 4)).argmax(dim=1)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
for epoch in range(10):
    for batch in torch.randperm(1024).split(64):
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.4f}")
torch.save(model.state_dict(), "weights.pt")
