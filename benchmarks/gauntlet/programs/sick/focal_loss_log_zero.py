"""A focal loss written from the formula: log of a probability that is exactly zero."""
# expects: nonfinite-loss, nonfinite-gradient
# report: https://github.com/NVIDIA/apex/issues/358

import torch
import torch.nn as nn


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, logits, target):
        p = torch.sigmoid(logits)
        pos = target * (1 - p) ** self.gamma * torch.log(p)
        neg = (1 - target) * p ** self.gamma * torch.log(1 - p)
        return -(pos + neg).mean()


torch.manual_seed(0)
x = torch.randn(512, 16) * 6
y = (x[:, :1] + 0.5 * x[:, 1:2] > 0).float()
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
focal = FocalLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for step in range(200):
    idx = torch.randint(0, 512, (64,))
    loss = focal(model(x[idx]) * 4, y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
