"""MobileNet blocks: expand, depthwise, linear bottleneck without an activation after the projection."""

import torch
import torch.nn as nn


class Inverted(nn.Module):
    def __init__(self, c, expand=3):
        super().__init__()
        h = c * expand
        self.block = nn.Sequential(
            nn.Conv2d(c, h, 1, bias=False), nn.BatchNorm2d(h), nn.ReLU6(),
            nn.Conv2d(h, h, 3, padding=1, groups=h, bias=False), nn.BatchNorm2d(h), nn.ReLU6(),
            nn.Conv2d(h, c, 1, bias=False), nn.BatchNorm2d(c),
        )

    def forward(self, x):
        return x + self.block(x)


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), Inverted(8), Inverted(8), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=4e-5)
y = torch.randint(0, 4, (320,))
x = nn.functional.interpolate(torch.randn(4, 1, 3, 3), size=12)[y] + 0.3 * torch.randn(320, 1, 12, 12)
for epoch in range(5):
    for i in torch.randperm(320).split(20):
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
