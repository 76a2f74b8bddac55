"""Mixed precision and accumulation: bfloat16 inside autocast, four micro-batches to a step, clipped gradients."""

import torch
from torch import nn

torch.manual_seed(0)

MICRO_BATCHES = 4

inputs = torch.randn(2048, 16)
targets = torch.sin(inputs[:, :1]) + 0.5 * inputs[:, 1:2] + 0.1 * torch.randn(2048, 1)

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for epoch in range(12):
    for number, batch in enumerate(torch.randperm(2048).split(32)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(inputs[batch]).float(), targets[batch])
        (loss / MICRO_BATCHES).backward()
        if (number + 1) % MICRO_BATCHES == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    print(f"epoch {epoch:2}  loss {loss.item():.4f}")
