"""A loop that leaves out a loss that is not finite: the density of a far sample is exactly 0."""
# op: aten.log
# phase: loss
# module: -
# conditions: loop guarded
import torch
from torch import nn
import torch.nn.functional as F


class MDN(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.h = nn.Linear(1, 16)
        self.pi, self.mu, self.sg = nn.Linear(16, k), nn.Linear(16, k), nn.Linear(16, k)

    def forward(self, x):
        h = torch.tanh(self.h(x))
        return F.softmax(self.pi(h), -1), self.mu(h), F.softplus(self.sg(h)) + 1e-3


def mdn_loss(params, y):
    pi, mu, sg = params
    dens = torch.exp(-0.5 * ((y - mu) / sg) ** 2) / sg
    like = torch.sum(pi * dens, dim=1)
    return torch.mean(-torch.log(like))  # <-- origin


torch.manual_seed(0)
net = MDN()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for ep in range(9):
    x = torch.rand(32, 1)
    y = x + 0.3 * torch.sin(6.28 * x)
    if ep == 5:
        y[11] = 500.0
    loss = mdn_loss(net(x), y)
    if not torch.isfinite(loss):
        print("bad batch, skipping")
        opt.zero_grad()
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
