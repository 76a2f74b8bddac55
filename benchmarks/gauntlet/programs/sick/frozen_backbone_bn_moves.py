"""requires_grad=False on the backbone, but its batch norms stay in train mode and adapt to the new data."""
# expects: buffer-drift
# report: https://github.com/lightly-ai/lightly/issues/1438

import torch
import torch.nn as nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        )

    def forward(self, x):
        return self.layers(x).mean((2, 3))


torch.manual_seed(0)
backbone = Backbone()
for parameter in backbone.parameters():
    parameter.requires_grad = False
head = nn.Linear(16, 4)
model = nn.Sequential(backbone, head)
optimizer = torch.optim.Adam(head.parameters(), lr=5e-3)
y = torch.randint(0, 4, (320,))
x = 3 + 2 * (torch.randn(4, 3, 8, 8)[y] + 0.5 * torch.randn(320, 3, 8, 8))
for epoch in range(5):
    model.train()
    for i in torch.randperm(320).split(16):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
