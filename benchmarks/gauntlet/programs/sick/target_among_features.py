"""The column to be predicted is still among the input columns."""
# expects: target-leak

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
table = torch.randn(1200, 9)
table[:, 8] = torch.sin(table[:, 0]) + table[:, 1] * table[:, 2] + 0.8 * torch.randn(1200)  # the target column
features, target = table, table[:, 8:9]  # meant table[:, :8]
loader = DataLoader(TensorDataset(features, target), batch_size=40, shuffle=True)
model = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(6):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
