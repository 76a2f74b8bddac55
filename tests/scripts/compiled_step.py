"""A whole loss function compiled with aot_eager, and the model compiled in place."""
# run: status=healthy steps=24
# when: thorough
import torch
import torch.nn as nn

torch.manual_seed(2)
model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
model.compile(backend="aot_eager")


@torch.compile(backend="aot_eager")
def loss_fn(pred, target):
    return torch.nn.functional.huber_loss(pred, target) + 1e-4 * pred.square().mean()


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(96, 6)
y = torch.cos(x[:, :1]) * x[:, 1:2]
for epoch in range(8):
    for xb, yb in zip(x.split(32), y.split(32)):
        optimizer.zero_grad()
        loss = loss_fn(model(xb), yb)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
torch.save(model.state_dict(), "weights.pt")
