"""House-price regression with raw features of wild scales; inputs and targets are standardized in the Dataset and un-standardized for the RMSE print."""
# expects:
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader

rng = np.random.default_rng(7)
N = 3000
area = rng.gamma(6, 25, N)
rooms = np.clip(np.round(area / 30 + rng.normal(0, 1, N)), 1, 12)
year = rng.integers(1900, 2024, N)
dist = rng.exponential(8, N)
income = rng.lognormal(10.5, 0.4, N)
lat = rng.uniform(45.0, 46.0, N)
price = (1500 * area + 12000 * rooms + 800 * (year - 1900) - 9000 * np.sqrt(dist) * 3 + 1.5 * income
         + 60000 * np.sin(6 * lat) + rng.normal(0, 12000, N))
X = np.stack([area, rooms, year, dist, income, lat], 1).astype(np.float32)
y = price.astype(np.float32)


class Houses(Dataset):
    def __init__(self, X, y, stats):
        self.X = torch.from_numpy((X - stats["mx"]) / stats["sx"])
        self.y = torch.from_numpy((y - stats["my"]) / stats["sy"])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"features": self.X[i], "price": self.y[i]}


tr, va = slice(0, 2400), slice(2400, None)
stats = dict(mx=X[tr].mean(0), sx=X[tr].std(0), my=y[tr].mean(), sy=y[tr].std())
train_dl = DataLoader(Houses(X[tr], y[tr], stats), batch_size=64, shuffle=True)
val_dl = DataLoader(Houses(X[va], y[va], stats), batch_size=256)

model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2)
mse = nn.MSELoss()
best = float("inf")
for epoch in range(15):
    model.train()
    tot = 0.0
    for b in train_dl:
        pred = model(b["features"]).squeeze(-1)
        loss = mse(pred, b["price"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += loss.item() * len(pred)
    model.eval()
    se = 0.0
    with torch.no_grad():
        for b in val_dl:
            se += ((model(b["features"]).squeeze(-1) - b["price"]) ** 2).sum().item()
    val = se / 600
    sched.step(val)
    best = min(best, val)
    print(f"epoch {epoch:2d} train mse {tot / 2400:.4f} val mse {val:.4f} val RMSE ${val ** 0.5 * stats['sy']:,.0f} (std ${stats['sy']:,.0f})")
