"""One encoder is called twice in a step; the second picture of one pair is black."""
# op: aten.div
# phase: forward
# module: encoder.contrast
# conditions: model called-several-times

import torch
from torch import nn


class LocalContrast(nn.Module):
    def forward(self, image):
        flat = image.flatten(1)
        return (flat / flat.amax(dim=1, keepdim=True)).view_as(image)  # <-- origin


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.contrast = LocalContrast()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 4 * 4, 8)

    def forward(self, image):
        h = torch.relu(self.conv(self.contrast(image)))
        return self.fc(h.flatten(1))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.judge = nn.Linear(8, 1)

    def forward(self, left, right):
        return self.judge((self.encoder(left) - self.encoder(right)).abs()).squeeze(-1)


torch.manual_seed(0)
model = Siamese()
optimizer = torch.optim.Adam(model.parameters())
loss_fn = nn.BCEWithLogitsLoss()
for step in range(6):
    left, right = torch.rand(6, 1, 6, 6), torch.rand(6, 1, 6, 6)
    if step == 2:
        right[4] = 0
    optimizer.zero_grad()
    loss = loss_fn(model(left, right), torch.randint(0, 2, (6,)).float())
    loss.backward()
    optimizer.step()
