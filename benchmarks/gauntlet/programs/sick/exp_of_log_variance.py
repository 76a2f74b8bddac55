"""Gaussian NLL with an unbounded log-variance head that overflows."""
# expects: nonfinite-activation, nonfinite-loss, nonfinite-gradient, loss-explosion, lr-too-high, gradient-explosion

import torch
from torch import nn


class MeanVariance(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.mu = nn.Linear(64, 1)
        self.logvar = nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return self.mu(h), torch.exp(-self.logvar(h))


torch.manual_seed(0)
x = torch.randn(400, 4) * 50
y = (x.sum(1, keepdim=True) / 10) ** 2
net = MeanVariance()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(60):
    i = torch.randint(0, 400, (32,))
    mu, precision = net(x[i])
    loss = (0.5 * precision * (y[i] - mu) ** 2 - 0.5 * torch.log(precision)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
