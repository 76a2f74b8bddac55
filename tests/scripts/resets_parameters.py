"""Three restarts of one and the same model object, by reset_parameters() and a new optimizer."""
# run: status=healthy steps=any runs=any
# when: thorough
# findings: none
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(128, 8)
y = (x[:, 0] * x[:, 1] > 0).float()
model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 1), nn.Flatten(0))
best = float("inf")
for restart in range(3):
    model.apply(lambda m: m.reset_parameters() if hasattr(m, "reset_parameters") else None)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(40):
        opt.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        opt.step()
    print("restart", restart, loss.item())
    if loss.item() < best:
        best = loss.item()
        torch.save(model.state_dict(), "weights.pt")
