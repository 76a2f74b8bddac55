"""A ratio guarded by torch.where inside the model: the gradient still goes through the division by 0."""
# op: aten.div
# phase: backward|forward
# module: ratio
# conditions: model where absorbed

import torch
from torch import nn


class SafeRatio(nn.Module):
    def __init__(self):
        super().__init__()
        self.top = nn.Linear(4, 6)
        self.bottom = nn.Linear(4, 6)

    def forward(self, x):
        a = self.top(x)
        b = torch.relu(self.bottom(x))
        return torch.where(b > 0, a / b.clamp(max=100), torch.zeros_like(a))  # <-- origin


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.ratio = SafeRatio()
        self.bn = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(self.bn(self.ratio(x)))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters())
for _ in range(4):
    x = torch.randn(12, 4)
    opt.zero_grad()
    nn.functional.smooth_l1_loss(net(x), x[:, :1]).backward()
    opt.step()
