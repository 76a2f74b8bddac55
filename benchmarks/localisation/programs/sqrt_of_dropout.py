"""The square root of what dropout has set to 0: the derivative is infinite there."""
# op: aten.sqrt
# phase: backward
# module: block.act
# conditions: dropout rng model

import torch
from torch import nn
import torch.nn.functional as F


class RootAct(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.dropout = nn.Dropout(p)

    def forward(self, h):
        return torch.sqrt(self.dropout(h))  # <-- origin


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.act = RootAct(0.02)

    def forward(self, x):
        return self.act(F.softplus(self.fc(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.block = Block(8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.block(self.stem(x)))


torch.manual_seed(12)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
net.train()
for i in range(12):
    x = torch.randn(2, 6)
    loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
    opt.zero_grad()
    loss.backward()
    opt.step()
