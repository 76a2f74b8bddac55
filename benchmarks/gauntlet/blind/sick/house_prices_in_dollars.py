"""House prices in dollars (mean 300,000) are regressed as they are with Adam lr 1e-3 and MSE: loss 1e11, after the whole run the predictions are still near a few thousand."""
# expects: unnormalized-target
# report: https://stats.stackexchange.com/questions/352036/what-should-i-do-when-my-neural-network-doesnt-learn
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class Houses(Dataset):
    def __init__(self, n, seed):
        r = np.random.default_rng(seed)
        sqft = r.normal(0, 1, n)
        beds = r.normal(0, 1, n) * 0.5 + 0.5 * sqft
        year = r.normal(0, 1, n)
        loc = r.integers(0, 5, n)
        price = 300_000 + 90_000 * sqft + 10_000 * beds + 25_000 * year + 30_000 * (loc - 2) + r.normal(0, 15_000, n)
        self.x = np.concatenate([np.stack([sqft, beds, year], 1), np.eye(5)[loc]], 1).astype(np.float32)
        self.y = price.astype(np.float32)[:, None]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


torch.manual_seed(0)
train, test = Houses(4000, 0), Houses(500, 1)
loader = DataLoader(train, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss()
for epoch in range(8):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        p = model(torch.from_numpy(test.x))
        mae = (p - torch.from_numpy(test.y)).abs().mean()
    print(f"epoch {epoch} loss {loss.item():.4g} test mae {mae:.0f} mean pred {p.mean():.0f}")
