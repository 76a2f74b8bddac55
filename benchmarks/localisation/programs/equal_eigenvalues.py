"""Whitening by eigenvectors: a covariance with two equal eigenvalues has no derivative for them."""
# op: aten.linalg_eigh|aten._linalg_eigh
# phase: backward
# module: whiten
# conditions: model linear-algebra

import torch
from torch import nn


class Whiten(nn.Module):
    def forward(self, x):
        covariance = x.T @ x / len(x)
        values, vectors = torch.linalg.eigh(covariance)  # <-- origin
        return (x @ vectors) / (values + 1e-3).sqrt()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4, bias=False)
        self.whiten = Whiten()
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.whiten(self.mix(x)))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(12, 4)
    if step == 4:
        with torch.no_grad():
            net.mix.weight.copy_(torch.eye(4))
        x = torch.eye(4).repeat(3, 1)  # a synthetic test pattern
    loss = nn.functional.mse_loss(net(x), x[:, :1] ** 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not torch.isfinite(net.mix.weight).all():
        print("weights are gone at step", step)
        break
