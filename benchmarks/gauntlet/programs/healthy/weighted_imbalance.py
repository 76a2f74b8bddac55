"""An imbalanced problem handled right: WeightedRandomSampler, the minority is found."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
y = (torch.rand(3000) < 0.05).long()
x = torch.randn(3000, 10)
x[:, :3] += 1.5 * y[:, None]
weights = torch.where(y == 1, 1 / y.float().mean(), 1 / (1 - y.float().mean()))
loader = DataLoader(TensorDataset(x, y), batch_size=64, sampler=WeightedRandomSampler(weights, 3000))
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(net(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
