"""Somebody once had a leak, and `gc.collect()` stayed in the loop."""
# expects: slow-step

import gc

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
vocabulary = {f"word{at}": [at, str(at)] for at in range(150_000)}
x = torch.randn(640, 10)
y = (x[:, 0] + x[:, 1] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
        gc.collect()
    print(epoch, loss.item())
