"""Evidence is pooled as the n-th root of a product inside the model; at 0 its derivative is infinite."""
# op: aten.pow
# phase: backward
# module: fuse.pool
# conditions: model

import torch
from torch import nn


class GeometricPool(nn.Module):
    def forward(self, evidence):
        n = evidence.shape[1]
        product = evidence.prod(dim=1)
        return product ** (1.0 / n)  # <-- origin


class Fuse(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = GeometricPool()
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, views):
        return self.pool(views) + self.bias


class MultiView(nn.Module):
    def __init__(self):
        super().__init__()
        self.view = nn.Linear(6, 4)
        self.fuse = Fuse()
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.fuse(torch.relu(self.view(x))))


torch.manual_seed(0)
model = MultiView()
with torch.no_grad():
    model.view.bias.fill_(4.0)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(8, 3, 6)
    if step == 3:
        x[5, 1] *= 40
    loss = nn.functional.cross_entropy(model(x), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
