"""Targets around 60000 with Adam at 1e-3: thousands of steps until the bias is there."""
# expects: unnormalized-target

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(800, 12)
salary = 60_000 + 12_000 * x[:, :1] + 5_000 * x[:, 1:2] * x[:, 2:3] + 2_000 * torch.randn(800, 1)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.MSELoss()
for epoch in range(12):
    for i in torch.randperm(800).split(40):
        loss = loss_fn(model(x[i]), salary[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item() ** 0.5)
