"""Five-fold cross-validation, a new model and optimizer for each fold."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
x = torch.randn(500, 10)
y = (x[:, 0] + x[:, 1] ** 2 - 1 + 0.3 * torch.randn(500) > 0).float()
dataset = TensorDataset(x, y)
folds = torch.randperm(500).chunk(5)
scores = []
for k, held_out in enumerate(folds):
    train_idx = torch.cat([f for j, f in enumerate(folds) if j != k])
    train = DataLoader(Subset(dataset, train_idx.tolist()), batch_size=20, shuffle=True)
    valid = DataLoader(Subset(dataset, held_out.tolist()), batch_size=50)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        model.train()
        for xb, yb in train:
            optimizer.zero_grad()
            loss = criterion(model(xb).squeeze(1), yb)
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        hits = sum(((model(xb).squeeze(1) > 0) == (yb > 0.5)).sum().item() for xb, yb in valid)
    scores.append(hits / len(held_out))
    print(k, scores[-1])
