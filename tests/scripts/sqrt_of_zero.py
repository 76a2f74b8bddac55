"""Pairwise distances with a square root: the derivative at zero is infinite, and every weight becomes NaN."""
# run: status=critical steps=40
# findings: nonfinite-gradient
import torch
from torch import nn

torch.manual_seed(0)
points = torch.randn(60, 8)
kind = (points[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(40):
    a, b = torch.randint(0, 60, (2, 8))
    if step < 12:
        b = (a + 1 + step) % 60
    if step == 12:
        b[0] = a[0]
    distance = torch.sqrt(((model(points[a]) - model(points[b])) ** 2).sum(1))
    same = kind[a] == kind[b]
    loss = torch.where(same, distance, (2 - distance).clamp(min=0)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 4 == 0:
        print(f"{step:2d} {loss.item():.6f}")
torch.save(model.state_dict(), "weights.pt")
