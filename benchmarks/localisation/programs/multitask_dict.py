"""A model that returns a dict; the weights of its tasks are learnt as sigmas that begin at 0."""
# op: aten.reciprocal|aten.div
# phase: loss
# module: -
# conditions: dict-output first-step loop

import torch
from torch import nn
import torch.nn.functional as F


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.depth = nn.Linear(16, 1)
        self.segment = nn.Linear(16, 4)
        self.sigma = nn.Parameter(torch.zeros(2))  # meant as log-sigma

    def forward(self, x):
        h = self.trunk(x)
        return {"depth": self.depth(h), "segment": self.segment(h), "sigma": self.sigma}


def total_loss(out, target):
    losses = torch.stack([
        F.l1_loss(out["depth"], target["depth"]),
        F.cross_entropy(out["segment"], target["segment"]),
    ])
    precision = 1 / (2 * out["sigma"] ** 2)  # <-- origin
    return (precision * losses).sum()


torch.manual_seed(0)
model = MultiTask()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(8, 6)
    target = {"depth": torch.rand(8, 1), "segment": torch.randint(0, 4, (8,))}
    optimizer.zero_grad()
    loss = total_loss(model(x), target)
    loss.backward()
    optimizer.step()
