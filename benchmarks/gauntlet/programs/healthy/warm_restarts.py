"""CosineAnnealingWarmRestarts stepped with fractions of an epoch."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2, T_mult=2)
x = torch.randn(800, 10)
y = torch.sin(x[:, :1] * 2) + 0.1 * torch.randn(800, 1)
batches = 25
for epoch in range(14):
    for k, i in enumerate(torch.randperm(800).split(32)):
        loss = nn.functional.mse_loss(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(epoch + k / batches)
    print(epoch, loss.item(), scheduler.get_last_lr()[0])
