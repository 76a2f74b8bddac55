"""Sigmoid as the last activation, targets in degrees: nothing above 1 can be reached."""
# expects: output-range, unnormalized-target, saturated-units
# report: http://ansaurus.com/question/3644795-neural-network-python

import torch
from torch import nn


class WeatherNet(nn.Module):
    def __init__(self, window=24):
        super().__init__()
        self.gru = nn.GRU(1, 16, batch_first=True)
        self.out = nn.Sequential(nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, x):
        _, h = self.gru(x)
        return self.out(h[-1])


torch.manual_seed(0)
hours = torch.arange(2000) / 24
temperature = 15 + 8 * torch.sin(2 * torch.pi * hours) + torch.randn(2000)
windows = temperature.unfold(0, 25, 1)
net = WeatherNet()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(200):
    i = torch.randint(0, len(windows), (32,))
    x, y = windows[i, :24].unsqueeze(-1), windows[i, 24:]
    loss = nn.functional.mse_loss(net((x - 15) / 8), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, loss.item())
