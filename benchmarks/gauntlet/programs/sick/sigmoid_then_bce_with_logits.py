"""A segmentation net ends in a sigmoid and is trained with BCEWithLogitsLoss."""
# expects: double-softmax, loss-input-mismatch

import torch
import torch.nn as nn


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 1)
        )

    def forward(self, x):
        return self.net(x).sigmoid()


torch.manual_seed(0)
model = Segmenter()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.BCEWithLogitsLoss()
for step in range(100):
    mask = (nn.functional.interpolate(torch.rand(8, 1, 3, 3), size=12, mode="bilinear") > 0.6).float()
    image = mask + 0.4 * torch.randn_like(mask)
    loss = criterion(model(image), mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item())
