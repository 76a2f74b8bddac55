"""exp overflows to Inf in one module, and only two modules later Inf - Inf makes it NaN."""
# op: aten.exp
# phase: forward
# module: energy
# conditions: model inf-then-nan

import torch
from torch import nn


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return torch.exp(self.lin(x) ** 2)  # <-- origin


class Scale(nn.Module):
    def forward(self, x):
        return x * 0.5


class Centre(nn.Module):
    def forward(self, x):
        return x - x.mean(-1, keepdim=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy, self.scale, self.centre = Energy(), Scale(), Centre()
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.centre(self.scale(self.energy(x)))))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(8, 4)
    if step == 4:
        x[6] *= 25
    loss = nn.functional.mse_loss(net(x), torch.zeros(8, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
