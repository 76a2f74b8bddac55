"""A normalising flow: the negative log-likelihood goes below zero."""

import math

import torch
import torch.nn as nn


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.sum(1)


torch.manual_seed(0)
flow = nn.ModuleList(Coupling(i % 2 == 1) for i in range(6))
optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
for step in range(300):
    t = torch.rand(128, 1) * 3
    x = 0.1 * torch.cat([t.cos(), t.sin()], 1) + 0.005 * torch.randn(128, 2)
    z, logdet = x, 0.0
    for layer in flow:
        z, ld = layer(z)
        logdet = logdet + ld
    loss = (0.5 * z.pow(2).sum(1) + math.log(2 * math.pi) - logdet).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, loss.item())
