"""The feature frame of a sales forecast still holds the column that is to be predicted: the error is near zero within an epoch and the model is useless for the future."""
# expects: target-leak
# report: folklore
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(0)
torch.manual_seed(0)
n = 3000
frame = {
    "dow": rng.integers(0, 7, n) / 6.0,
    "promo": (rng.random(n) < 0.2).astype(float),
    "temp": rng.normal(0, 1, n),
    "price": rng.normal(0, 1, n),
    "stock": rng.normal(0, 1, n),
}
frame["sales"] = 0.8 * frame["promo"] - 0.5 * frame["price"] + 0.3 * np.sin(3 * frame["dow"]) + 0.2 * frame["temp"] + 0.8 * rng.normal(0, 1, n)
features = [c for c in frame]
X = torch.tensor(np.stack([frame[c] for c in features], 1), dtype=torch.float32)
y = torch.tensor(frame["sales"], dtype=torch.float32).unsqueeze(1)
X = (X - X.mean(0)) / X.std(0)
y = (y - y.mean()) / y.std()
dl = DataLoader(TensorDataset(X[:2500], y[:2500]), batch_size=50, shuffle=True)
model = nn.Sequential(nn.Linear(X.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    for xb, yb in dl:
        loss = nn.functional.mse_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        r2 = 1 - ((model(X[2500:]) - y[2500:]) ** 2).mean() / y[2500:].var()
    print(f"epoch {epoch} loss {loss.item():.5f} val R2 {r2:.4f}")
