"""Squeeze-and-excitation: sigmoid gates that are open or shut for some channels."""

import torch
import torch.nn as nn


class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(c, c // 4), nn.Linear(c // 4, c)

    def forward(self, x):
        h = torch.relu(self.conv(x))
        gate = torch.sigmoid(self.fc2(torch.relu(self.fc1(h.mean((2, 3))))))
        return x + h * gate[:, :, None, None]


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), SE(16), SE(16), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 5))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
y = torch.randint(0, 5, (320,))
x = nn.functional.interpolate(torch.randn(5, 3, 3, 3), size=10)[y] + 0.4 * torch.randn(320, 3, 10, 10)
for epoch in range(5):
    for i in torch.randperm(320).split(16):
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
