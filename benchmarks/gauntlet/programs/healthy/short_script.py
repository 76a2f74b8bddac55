"""Thirty steps, and done."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optim = torch.optim.Adam(model.parameters(), lr=1e-2)
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True)
for _ in range(30):
    optim.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optim.step()
print(loss.item())
