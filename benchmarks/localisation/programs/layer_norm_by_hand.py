"""A layer norm by hand adds eps outside the root: a constant row has variance 0, and sqrt no derivative."""
# op: aten.sqrt
# phase: backward
# module: encoder.1.norm
# conditions: model deep-path

import torch
from torch import nn


class MyLayerNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.g = nn.Parameter(torch.ones(dim))
        self.b = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True, unbiased=False)
        std = var.sqrt()  # <-- origin
        return self.g * (x - mean) / (std + self.eps) + self.b


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.norm = MyLayerNorm(dim)

    def forward(self, x):
        return self.norm(self.fc(x))


torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(Layer(8), Layer(8), Layer(8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    if step == 3:
        with torch.no_grad():
            net.encoder[1].fc.weight.zero_()
            net.encoder[1].fc.bias.zero_()  # a layer is set back
    x = torch.randn(6, 8)
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 2, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
