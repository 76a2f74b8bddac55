"""The backward that the user wrote for a custom autograd.Function divides by 0."""
# op: aten.div|Root|RootBackward
# phase: backward
# module: root|-
# conditions: custom-function model

import torch
from torch import nn


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clamp(min=0).sqrt()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output / (2 * y)  # <-- origin


class RootLayer(nn.Module):
    def forward(self, x):
        return Root.apply(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.root = RootLayer()
        self.b = nn.Linear(8, 1)

    def forward(self, x):
        return self.b(self.root(self.a(x)))


torch.manual_seed(0)
net = Net()
with torch.no_grad():
    net.a.bias.fill_(8.0)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(7):
    x = torch.randn(8, 4)
    if step == 4:
        x[1] = -80 * net.a.weight[0].detach()
    loss = nn.functional.mse_loss(net(x), torch.ones(8, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
