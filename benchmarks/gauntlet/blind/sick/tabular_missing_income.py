"""The CSV had missing incomes that stayed NaN (nanmean/nanstd hid them in the scaling), so some batches carry NaN and the loss turns NaN in the first epoch."""
# expects: nonfinite-input, nonfinite-loss
# report: folklore
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(3)
torch.manual_seed(3)
n = 6000
age = rng.uniform(18, 80, n)
income = rng.lognormal(10.3, 0.5, n)
balance = rng.normal(1200, 800, n)
tenure = rng.integers(0, 10, n).astype(float)
score = 0.04 * (age - 45) + 1.5 * (np.log(income) - 10.3) - 0.001 * (balance - 1200) + 0.2 * (tenure - 5)
churn = (score + rng.normal(0, 0.5, n) > 0).astype(np.float32)

# some customers never told us their income
income[rng.random(n) < 0.002] = np.nan

X = np.stack([age, income, balance, tenure], 1)
X = (X - np.nanmean(X, 0)) / np.nanstd(X, 0)
X = X.astype(np.float32)

tr, va = slice(0, 5000), slice(5000, n)
train_dl = DataLoader(TensorDataset(torch.from_numpy(X[tr]), torch.from_numpy(churn[tr])), batch_size=64, shuffle=True)
val_x, val_y = torch.from_numpy(X[va]), torch.from_numpy(churn[va])

model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
crit = nn.BCEWithLogitsLoss()

for epoch in range(6):
    model.train()
    total = 0.0
    for xb, yb in train_dl:
        opt.zero_grad()
        loss = crit(model(xb).squeeze(1), yb)
        loss.backward()
        opt.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        acc = ((model(val_x).squeeze(1) > 0).float() == val_y).float().mean().item()
    print(f"epoch {epoch} loss {total/len(train_dl):.4f} val acc {acc:.3f}")
