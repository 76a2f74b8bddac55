"""Poincaré embeddings: a point that is clipped to the edge of the disk, at norm 1, is infinitely far away."""
# op: aten.atanh
# phase: forward
# module: distance
# conditions: model

import torch
from torch import nn


class FromCentre(nn.Module):
    def forward(self, x):
        norm = x.norm(dim=-1).clamp(max=1.0)
        return 2 * torch.atanh(norm)  # <-- origin


class Poincare(nn.Module):
    def __init__(self, words=20):
        super().__init__()
        self.points = nn.Embedding(words, 3)
        self.distance = FromCentre()
        nn.init.uniform_(self.points.weight, -0.3, 0.3)

    def forward(self, words):
        return self.distance(self.points(words))


torch.manual_seed(0)
model = Poincare()
optimizer = torch.optim.SGD(model.parameters(), lr=3.0)
for step in range(20):
    words = torch.randint(0, 20, (10,))
    depth = words.float() / 4
    loss = nn.functional.l1_loss(model(words), depth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
