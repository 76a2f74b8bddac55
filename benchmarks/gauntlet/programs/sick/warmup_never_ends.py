"""Warm-up over 100000 steps in a run of 400: the rate never gets anywhere."""
# expects: lr-jump, lr-too-low, update-ratio-low, loss-plateau

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

torch.manual_seed(0)
WARMUP = 100_000
model = nn.Sequential(nn.Embedding(40, 16), nn.Flatten(), nn.Linear(16 * 6, 64), nn.ReLU(), nn.Linear(64, 40))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
for step in range(400):
    start = torch.randint(0, 40, (32, 1))
    stride = torch.randint(1, 4, (32, 1))
    seq = (start + stride * torch.arange(7)) % 40
    loss = nn.functional.cross_entropy(model(seq[:, :6]), seq[:, 6])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 100 == 0:
        print(step, scheduler.get_last_lr(), loss.item())
