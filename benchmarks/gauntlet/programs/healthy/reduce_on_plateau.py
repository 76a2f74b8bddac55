"""ReduceLROnPlateau on the validation loss with early stopping."""

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(1000, 8)
y = torch.sin(2 * x[:, :1]) + 0.3 * torch.randn(1000, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
best, bad = float("inf"), 0
for epoch in range(25):
    model.train()
    for i in torch.randperm(700).split(50):
        loss = nn.functional.mse_loss(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val = nn.functional.mse_loss(model(x[700:]), y[700:]).item()
    scheduler.step(val)
    if val < best - 1e-4:
        best, bad = val, 0
    else:
        bad += 1
    if bad >= 5:
        break
print(epoch, best)
