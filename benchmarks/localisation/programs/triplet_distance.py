"""Triplet loss: sqrt of a squared distance that is 0, for an anchor that is its own positive."""
# op: aten.sqrt
# phase: backward
# module: -
# conditions: loop called-several-times

import torch
from torch import nn

torch.manual_seed(0)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 4))

    def forward(self, x):
        return self.layers(x)


def distance(a, b):
    return torch.sqrt(((a - b) ** 2).sum(dim=1))  # <-- origin


model = Embedder()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(6):
    anchor = torch.randn(8, 10)
    positive = anchor + 0.1 * torch.randn(8, 10)
    negative = torch.randn(8, 10)
    if step == 3:
        positive[2] = anchor[2]  # the same picture was drawn twice
    a, p, n = model(anchor), model(positive), model(negative)
    loss = torch.relu(distance(a, p) - distance(a, n) + 1.0).mean() + 0.1 * distance(a, p).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, round(loss.item(), 4))
