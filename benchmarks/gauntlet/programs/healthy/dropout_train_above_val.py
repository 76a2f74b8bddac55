"""Strong dropout: the training loss is above the validation loss all along."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
x = torch.randn(1200, 20)
y = (x[:, :4] + 0.3 * torch.randn(1200, 4)).argmax(1)
train, val = random_split(TensorDataset(x, y), [900, 300])
train_loader, val_loader = DataLoader(train, 30, shuffle=True), DataLoader(val, 60)
model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(8):
    model.train()
    train_loss = 0.0
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
    model.eval()
    val_loss = 0.0
    with torch.no_grad():
        for xb, yb in val_loader:
            val_loss += criterion(model(xb), yb).item()
    print(epoch, train_loss / len(train_loader), val_loss / len(val_loader))
