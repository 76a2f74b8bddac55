"""A compiled model: the energy score inside takes the root of a difference that rounding made negative."""
# op: aten.sqrt
# phase: forward
# module: spread|_orig_mod.spread
# conditions: compile model

import torch
from torch import nn


class Spread(nn.Module):
    def forward(self, x):
        variance = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
        return torch.sqrt(variance)  # <-- origin


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(4, 6)
        self.spread = Spread()
        self.out = nn.Linear(7, 1)

    def forward(self, x):
        h = self.inp(x)
        return self.out(torch.cat([h, self.spread(h)], -1))


torch.manual_seed(0)
net = Net()
model = torch.compile(net, backend="eager")
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(16, 4)
    if step == 4:
        with torch.no_grad():
            net.inp.weight.mul_(1e-4)
            net.inp.bias.fill_(1000.1)
    loss = nn.functional.smooth_l1_loss(model(x), x[:, :1])
    opt.zero_grad()
    loss.backward()
    opt.step()
