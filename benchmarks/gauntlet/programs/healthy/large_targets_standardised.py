"""House prices, standardised by the training set's mean and deviation; reported in dollars."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rooms = torch.randint(1, 8, (1000,)).float()
area = torch.empty(1000).uniform_(40, 250)
age = torch.empty(1000).uniform_(0, 100)
X = torch.stack([rooms, area, age], 1)
price = (1800 * area + 9000 * rooms - 400 * age + 15000 * torch.randn(1000)).unsqueeze(1)
xm, xs, ym, ys = X[:800].mean(0), X[:800].std(0), price[:800].mean(), price[:800].std()
X, target = (X - xm) / xs, (price - ym) / ys
loader = DataLoader(TensorDataset(X[:800], target[:800]), batch_size=40, shuffle=True)
model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(8):
    model.train()
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        error = ((model(X[800:]) * ys + ym - price[800:]).abs().mean()).item()
    print(epoch, f"{error:.0f} $")
