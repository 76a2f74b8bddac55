"""Features of a frozen backbone are all 0 after ReLU for one image; the head divides by their sum."""
# op: aten.div
# phase: forward
# module: head.0
# conditions: frozen model

import torch
from torch import nn


class SumToOne(nn.Module):
    def forward(self, f):
        return f / f.sum(dim=1, keepdim=True)  # <-- origin


class FineTune(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(SumToOne(), nn.Linear(12, 2))

    def forward(self, x):
        with torch.no_grad():
            f = self.backbone(x)
        return self.head(f)


torch.manual_seed(0)
backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 12), nn.ReLU())
backbone.requires_grad_(False).eval()
model = FineTune(backbone)
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(6):
    x = torch.randn(4, 1, 6, 6)
    if step == 3:
        with torch.no_grad():
            backbone[3].bias.fill_(-20)  # a checkpoint that does not fit was loaded
    optimizer.zero_grad()
    loss = criterion(model(x), torch.randint(0, 2, (4,)))
    loss.backward()
    optimizer.step()
