"""Siamese network with a contrastive margin loss: pairs within a batch share the weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, a, b):
        return self.body(a), self.body(b)


def contrastive(a, b, same, margin=1.0):
    distance = F.pairwise_distance(a, b)
    return (same * distance.pow(2) + (1 - same) * F.relu(margin - distance).pow(2)).mean()


torch.manual_seed(0)
centres = torch.randn(8, 20)
net = Siamese()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(250):
    i, j = torch.randint(0, 8, (2, 48))
    j = torch.where(torch.rand(48) < 0.5, i, j)
    a, b = centres[i] + 0.4 * torch.randn(48, 20), centres[j] + 0.4 * torch.randn(48, 20)
    loss = contrastive(*net(a, b), (i == j).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
