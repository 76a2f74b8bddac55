"""The forward of a custom autograd.Function takes the logarithm of 0."""
# op: aten.log
# phase: forward
# module: spectral
# conditions: custom-function model

import torch
from torch import nn


class LogMagnitude(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        magnitude = x.abs()
        return torch.log(magnitude)  # <-- origin

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (x + 1e-8 * torch.sign(x) + 1e-12)


class Spectral(nn.Module):
    def forward(self, x):
        return LogMagnitude.apply(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6, bias=False)
        self.spectral = Spectral()
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.spectral(self.fc(x)))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(8, 6)
    if step == 3:
        x[5] = 0  # silence
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
