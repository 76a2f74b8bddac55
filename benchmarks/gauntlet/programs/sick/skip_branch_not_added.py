"""A residual block computes its shortcut convolution and forgets to add it."""
# expects: unused-parameter, missing-gradient

import torch
import torch.nn as nn


class Residual(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1)
        self.shortcut = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x):
        identity = self.shortcut(x)
        x = torch.relu(self.conv1(x))
        x = self.conv2(x)
        return torch.relu(x)


torch.manual_seed(0)
net = nn.Sequential(Residual(1, 8), Residual(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
y = torch.randint(0, 4, (240,))
x = torch.randn(4, 1, 10, 10)[y] + 0.4 * torch.randn(240, 1, 10, 10)
for epoch in range(4):
    for i in torch.randperm(240).split(16):
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
