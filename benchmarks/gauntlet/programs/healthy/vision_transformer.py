"""A small ViT with warm-up and cosine decay to zero."""

import math

import torch
import torch.nn as nn


class ViT(nn.Module):
    def __init__(self, dim=32, depth=2, classes=6):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 4, stride=4)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, 17, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


torch.manual_seed(0)
model = ViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
steps, warmup = 120, 15
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: s / warmup if s < warmup else 0.5 * (1 + math.cos(math.pi * (s - warmup) / (steps - warmup)))
)
shapes = nn.functional.interpolate(torch.randn(6, 1, 4, 4), size=16)
for step in range(steps):
    y = torch.randint(0, 6, (24,))
    x = shapes[y] + 0.5 * torch.randn(24, 1, 16, 16)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(step, loss.item())
