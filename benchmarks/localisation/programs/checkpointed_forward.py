"""A checkpointed block (non-reentrant) whose exponential gate overflows on one batch."""
# op: aten.exp
# phase: forward
# module: blocks.1
# conditions: checkpoint model

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Gated(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.a = nn.Linear(dim, dim)
        self.b = nn.Linear(dim, dim)

    def forward(self, x):
        gate = torch.exp(self.a(x))  # <-- origin
        return x + gate * torch.tanh(self.b(x)) / (1 + gate)


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.inp = nn.Linear(4, dim)
        self.blocks = nn.ModuleList([Gated(dim) for _ in range(3)])
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.out(x)


torch.manual_seed(0)
net = Net()
with torch.no_grad():
    net.blocks[1].a.weight.mul_(12)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(8, 4)
    if step == 3:
        x[2] *= 30
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
