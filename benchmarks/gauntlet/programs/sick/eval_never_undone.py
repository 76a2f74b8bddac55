"""validate() puts the model into eval mode; nothing puts it back."""
# expects: eval-mode-training
# report: https://github.com/fartashf/vsepp/issues/4

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def validate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
    return correct / len(loader.dataset)


x = torch.randn(800, 20)
y = (x[:, :4] + 0.5 * torch.randn(800, 4)).argmax(1)
train_loader = DataLoader(TensorDataset(x[:640], y[:640]), 32, shuffle=True)
val_loader = DataLoader(TensorDataset(x[640:], y[640:]), 80)
model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
model.train()
for epoch in range(6):
    for xb, yb in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(xb), yb).backward()
        optimizer.step()
    print(epoch, validate(model, val_loader))
