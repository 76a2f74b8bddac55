"""A convolutional autoencoder with a sigmoid output and targets in [0, 1]."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class AE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()
        )
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1)
        )

    def forward(self, x):
        return torch.sigmoid(self.dec(self.enc(x)))


torch.manual_seed(0)
images = F.interpolate(torch.rand(640, 1, 4, 4), size=16, mode="bilinear")
model = AE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(5):
    for i in torch.randperm(640).split(32):
        loss = F.mse_loss(model(images[i]), images[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
