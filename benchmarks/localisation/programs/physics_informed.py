"""A physics-informed net: the hard boundary factor sqrt(x) has an infinite slope at the collocation point x = 0."""
# op: aten.sqrt
# phase: backward|loss
# module: Solution|-
# conditions: double-backward model

import torch
from torch import nn


class Solution(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return torch.sqrt(x) * self.net(x)  # <-- origin


torch.manual_seed(0)
u = Solution()
opt = torch.optim.Adam(u.parameters(), lr=1e-3)
for step in range(6):
    x = torch.rand(12, 1) + 0.01
    if step == 3:
        x[0] = 0.0  # the boundary itself was drawn
    x.requires_grad_(True)
    y = u(x)
    slope = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
    residual = slope - y
    loss = residual.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
