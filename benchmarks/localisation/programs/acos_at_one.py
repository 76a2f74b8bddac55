"""The angle between a predicted and a true direction: acos has an infinite derivative at exactly 1."""
# op: aten.acos
# phase: backward
# module: AngularLoss|criterion|-
# conditions: loss-module

import torch
from torch import nn
import torch.nn.functional as F


class AngularLoss(nn.Module):
    def forward(self, prediction, target):
        cos = (prediction * target).sum(-1).clamp(-1.0, 1.0)
        return torch.acos(cos).mean()  # <-- origin


class Gaze(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


torch.manual_seed(0)
model, criterion = Gaze(), AngularLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
axis = torch.tensor([0.0, 0.0, 1.0])
for step in range(6):
    x = torch.randn(8, 8)
    target = F.normalize(torch.randn(8, 3), dim=-1)
    if step == 4:
        with torch.no_grad():
            model.net[2].weight.zero_()
            model.net[2].bias.copy_(axis)
        target[2] = axis  # a perfect prediction
    loss = criterion(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
