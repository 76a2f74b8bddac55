"""A second derivative goes through the distance to the origin, and one point lies there."""
# op: aten.sqrt
# phase: backward
# module: Field|-
# conditions: double-backward model
import torch
from torch import nn


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, xy):
        r = torch.sqrt((xy**2).sum(-1, keepdim=True))  # <-- origin
        return self.f(torch.cat([xy, r], -1))


def residual(net, xy):
    xy = xy.clone().requires_grad_(True)
    u = net(xy)
    g = torch.autograd.grad(u.sum(), xy, create_graph=True)[0]
    lap = 0
    for i in range(2):
        lap = lap + torch.autograd.grad(g[:, i].sum(), xy, create_graph=True)[0][:, i]
    return lap + 1.0


torch.manual_seed(0)
net = Field()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    pts = torch.rand(16, 2) * 2 - 1
    if step == 3:
        pts[5] = 0.0
    loss = residual(net, pts).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
