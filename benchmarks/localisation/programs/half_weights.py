"""A squared ReLU in half precision: the square of an activation of 300 is Inf."""
# op: aten.pow
# phase: forward
# module: blocks.1.ff.act
# conditions: half model deep-path

import torch
from torch import nn


class SquaredReLU(nn.Module):
    def forward(self, x):
        return torch.relu(x).pow(2)  # <-- origin


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.act = SquaredReLU()
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Block(nn.Module):
    def __init__(self, dim, gain):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = FeedForward(dim)
        nn.init.constant_(self.norm.weight, gain)

    def forward(self, x):
        return x + self.ff(self.norm(x))


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim, 1.0), Block(dim, 400.0)])
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
net = Net().half()
opt = torch.optim.SGD(net.parameters(), lr=1e-5)
for step in range(3):
    x = torch.randn(4, 16).half()
    loss = net(x).float().pow(2).mean() * 1e-4
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
