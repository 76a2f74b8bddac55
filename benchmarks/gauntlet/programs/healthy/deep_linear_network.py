"""A low-rank factorised layer (two linears in a row, on purpose) inside a network that has activations."""

import torch
import torch.nn as nn


class LowRank(nn.Module):
    def __init__(self, i, o, rank):
        super().__init__()
        self.down = nn.Linear(i, rank, bias=False)
        self.up = nn.Linear(rank, o)

    def forward(self, x):
        return self.up(self.down(x))


torch.manual_seed(0)
net = nn.Sequential(LowRank(40, 64, 8), nn.ReLU(), LowRank(64, 64, 8), nn.ReLU(), nn.Linear(64, 5))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
x = torch.randn(900, 40)
y = x[:, :5].argmax(1)
for epoch in range(6):
    for i in torch.randperm(900).split(30):
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
