"""Validation under no_grad, but the model stays in train mode: dropout and batch statistics are live."""
# expects: train-mode-evaluation
# report: https://github.com/udacity/deep-learning-v2-pytorch/issues/3

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(900, 16)
y = (x[:, :3] + 0.4 * torch.randn(900, 3)).argmax(1)
train = DataLoader(TensorDataset(x[:600], y[:600]), batch_size=30, shuffle=True)
valid = DataLoader(TensorDataset(x[600:], y[600:]), batch_size=30)
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(5):
    for data, target in train:
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        loss.backward()
        optimizer.step()
    valid_loss = 0.0
    with torch.no_grad():
        for data, target in valid:
            valid_loss += criterion(model(data), target).item()
    print(f"Epoch: {epoch} train {loss.item():.4f} valid {valid_loss / len(valid):.4f}")
