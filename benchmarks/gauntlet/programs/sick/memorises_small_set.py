"""A wide net on 120 noisy samples with validation after every epoch: classic overfitting."""
# expects: overfitting

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def accuracy_and_loss(model, loader, criterion):
    model.eval()
    total, seen = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            total += criterion(model(x), y).item() * len(x)
            seen += len(x)
    model.train()
    return total / seen


torch.manual_seed(0)
x = torch.randn(360, 30)
y = ((x[:, 0] + 0.7 * x[:, 1] + 1.2 * torch.randn(360)) > 0).long()
train, valid = random_split(TensorDataset(x, y), [120, 240])
train_loader = DataLoader(train, batch_size=20, shuffle=True)
valid_loader = DataLoader(valid, batch_size=60)
model = nn.Sequential(nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(60):
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
    if epoch % 5 == 0:
        print(epoch, loss.item(), accuracy_and_loss(model, valid_loader, criterion))
    else:
        accuracy_and_loss(model, valid_loader, criterion)
