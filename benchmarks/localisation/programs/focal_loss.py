"""Focal loss with gamma 0.5 as a module of its own: (1 - p) ** 0.5 has an infinite derivative at p = 1."""
# op: aten.pow
# phase: backward
# module: FocalLoss|criterion|-
# conditions: loss-module

import torch
from torch import nn
import torch.nn.functional as F


class FocalLoss(nn.Module):
    def __init__(self, gamma=0.5):
        super().__init__()
        self.gamma = gamma

    def forward(self, logits, target):
        p = F.softmax(logits, dim=-1).gather(1, target[:, None]).squeeze(1)
        modulation = (1 - p) ** self.gamma  # <-- origin
        return (modulation * F.cross_entropy(logits, target, reduction="none")).mean()


torch.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 3))
criterion = FocalLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6):
    image = torch.randn(8, 4, 4)
    label = torch.randint(0, 3, (8,))
    if step == 4:
        image[1] *= 500
        with torch.no_grad():
            label[1] = net(image[1:2]).argmax()
    loss = criterion(net(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
