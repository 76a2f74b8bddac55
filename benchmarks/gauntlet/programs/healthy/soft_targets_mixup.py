"""Mixup: cross-entropy with probability targets, softmax of a teacher on the target side only."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
shapes = F.interpolate(torch.randn(5, 1, 3, 3), size=12)
for step in range(200):
    y = torch.randint(0, 5, (32,))
    x = shapes[y] + 0.3 * torch.randn(32, 1, 12, 12)
    lam = torch.distributions.Beta(0.4, 0.4).sample()
    perm = torch.randperm(32)
    mixed = lam * x + (1 - lam) * x[perm]
    target = lam * F.one_hot(y, 5).float() + (1 - lam) * F.one_hot(y[perm], 5).float()
    loss = F.cross_entropy(net(mixed), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
