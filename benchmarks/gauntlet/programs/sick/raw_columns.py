"""Income in dollars next to an age in years, fed raw to an MLP."""
# expects: unnormalized-input

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
n = 1200
age = torch.empty(n).uniform_(18, 80)
income = torch.empty(n).uniform_(15_000, 180_000)
children = torch.randint(0, 4, (n,)).float()
debt = torch.empty(n).uniform_(0, 60_000)
X = torch.stack([age, income, children, debt], 1)
risk = (debt / income - 0.3 + 0.02 * (age - 45) + 0.2 * torch.randn(n) > 0).float().unsqueeze(1)
model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(5):
    for x, y in DataLoader(TensorDataset(X, risk), batch_size=30, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
