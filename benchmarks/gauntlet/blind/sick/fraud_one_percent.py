"""Fraud is 1 % of the rows and the loss is unweighted: the net says 'no fraud' for everything, 99 % accuracy and recall 0."""
# expects: class-imbalance
# report: folklore
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
N = 12000
x = torch.randn(N, 12)
y = (torch.rand(N) < 0.01).long()
x[y == 1, :4] += 0.9  # fraud is shifted, but overlaps
train = TensorDataset(x[:10000], y[:10000])
loader = DataLoader(train, batch_size=100, shuffle=True)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def report(model, x, y):
    model.eval()
    with torch.no_grad():
        pred = model(x).argmax(1)
    model.train()
    acc = (pred == y).float().mean().item()
    recall = (pred[y == 1] == 1).float().mean().item()
    return acc, recall, (pred == 1).sum().item()


for epoch in range(6):
    tot = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        tot += loss.item()
    acc, rec, flagged = report(model, x[10000:], y[10000:])
    print(f"epoch {epoch} loss {tot/len(loader):.4f} acc {acc:.4f} recall {rec:.3f} flagged {flagged}")
