"""The target is (B,) while the net gives (B, 1); the squared error written by hand broadcasts to (B, B), and the model learns the mean only."""
# expects: broadcast-loss
# report: https://github.com/jsboige/CoursIA/pull/926
import numpy as np
import torch
import torch.nn as nn


def wind(n, rng):
    v = rng.weibull(2.0, n) * 8
    d = rng.uniform(0, 2 * np.pi, n)
    temp = rng.normal(10, 8, n)
    power = np.clip((v / 12) ** 3, 0, 1) * (1 + 0.1 * np.cos(d)) - 0.003 * temp
    x = np.stack([(v - 7) / 4, np.cos(d), np.sin(d), temp / 10], 1)
    return x.astype(np.float32), power.astype(np.float32)


def mse(pred, target):
    return ((pred - target) ** 2).mean()


rng = np.random.default_rng(1)
torch.manual_seed(1)
x, y = wind(3000, rng)
x, y = torch.from_numpy(x), torch.from_numpy(y)
net = nn.Sequential(nn.Linear(4, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(8):
    for b in torch.randperm(2500).split(50):
        loss = mse(net(x[b]), y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        p = net(x[2500:])
        print(f"epoch {epoch} loss {loss.item():.4f} pred std {p.std():.4f} target std {y[2500:].std():.4f}")
