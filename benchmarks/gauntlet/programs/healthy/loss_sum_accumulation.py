"""Accumulation with summed losses divided by the number of samples of all micro-batches."""

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(960, 8)
y = torch.sin(x[:, :1]) + x[:, 1:2]
model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(8):
    for big in torch.randperm(960).split(64):
        optimizer.zero_grad()
        total = 0.0
        for small in big.split(16):
            loss = nn.functional.mse_loss(model(x[small]), y[small], reduction="sum") / len(big)
            loss.backward()
            total += loss.item()
        optimizer.step()
    print(epoch, total)
