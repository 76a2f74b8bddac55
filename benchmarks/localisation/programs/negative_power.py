"""Gamma correction raises what a convolution made to a fractional power; a negative pixel is NaN."""
# op: aten.pow
# phase: forward
# module: gamma
# conditions: model cnn

import torch
from torch import nn


class Gamma(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.tensor(1 / 2.2))

    def forward(self, image):
        return image**self.gamma  # <-- origin


class Enhance(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.gamma = Gamma()
        nn.init.constant_(self.conv.weight, 0.02)
        nn.init.constant_(self.conv.bias, 0.05)

    def forward(self, image):
        return self.gamma(self.conv(image))


torch.manual_seed(0)
model = Enhance()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for i in range(3):
        image = torch.rand(2, 3, 6, 6)
        if (epoch, i) == (1, 2):
            image = image - 0.8  # one loader still subtracts the mean
        loss = nn.functional.mse_loss(model(image), image.clamp(min=0).sqrt())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
