"""The transfer learning tutorial: frozen feature extractor in eval mode, a new head."""

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler


class ResNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        )
        self.fc = nn.Linear(32 * 9, 100)

    def forward(self, x):
        return self.fc(self.features(x))


torch.manual_seed(0)
model = ResNetish()
for param in model.parameters():
    param.requires_grad = False
model.fc = nn.Linear(model.fc.in_features, 3)
optimizer = optim.SGD(model.fc.parameters(), lr=0.02, momentum=0.9)
scheduler = lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
y = torch.randint(0, 3, (360,))
x = torch.randn(3, 3, 10, 10)[y] + 0.5 * torch.randn(360, 3, 10, 10)
for epoch in range(6):
    model.eval()
    model.fc.train()
    for i in torch.randperm(360).split(24):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(epoch, loss.item())
