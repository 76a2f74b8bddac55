"""A mixture density network has its loss as a method: far away all densities underflow, and log(0) is -inf."""
# op: aten.log
# phase: loss|forward
# module: MDN|-
# conditions: method tuple-output

import math

import torch
from torch import nn


class MDN(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.hidden = nn.Linear(1, 12)
        self.pi = nn.Linear(12, k)
        self.mu = nn.Linear(12, k)
        self.sigma = nn.Linear(12, k)

    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        return self.pi(h).softmax(-1), self.mu(h), nn.functional.softplus(self.sigma(h)) + 0.05

    def nll(self, parts, y):
        pi, mu, sigma = parts
        density = torch.exp(-0.5 * ((y - mu) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
        likelihood = (pi * density).sum(-1)
        return -torch.log(likelihood).mean()  # <-- origin


torch.manual_seed(0)
mdn = MDN()
opt = torch.optim.Adam(mdn.parameters(), lr=1e-3)
for step in range(6):
    x = torch.rand(10, 1)
    y = torch.sin(6 * x)
    if step == 3:
        y[7] = 55.0
    loss = mdn.nll(mdn(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
