"""The number of threads is that of the machine it was written on."""
# expects: cpu-pressure

import os
import time

import torch
import torch.nn as nn

torch.manual_seed(0)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # what the scheduler of this machine gives
torch.set_num_threads(64)
x = torch.randn(4096, 256)
y = (x[:, 0] > 0).long()
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
until = time.monotonic() + 5
while time.monotonic() < until:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
print(loss.item())
