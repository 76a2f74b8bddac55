"""Triplet margin loss: more and more triplets are satisfied and give zero."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 12))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
criterion = nn.TripletMarginLoss(margin=0.5)
centres = torch.randn(10, 24)
for step in range(250):
    a, n = torch.randint(0, 10, (2, 48))
    n = torch.where(a == n, (n + 1) % 10, n)
    noise = lambda: 0.6 * torch.randn(48, 24)
    loss = criterion(net(centres[a] + noise()), net(centres[a] + noise()), net(centres[n] + noise()))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
