"""A shard of black frames in the middle of the epoch: all inputs constant, labels as ever."""
# expects: input-drift, loss-spike

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
labels = torch.randint(0, 4, (1600,))
frames = torch.randn(4, 1, 10, 10)[labels] + 0.5 * torch.randn(1600, 1, 10, 10)
frames[1200:1360] = -40.0  # the sensor was off
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
for epoch in range(1):
    for x, y in DataLoader(TensorDataset(frames, labels), batch_size=16):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
