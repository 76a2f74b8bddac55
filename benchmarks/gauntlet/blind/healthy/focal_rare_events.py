"""Fraud-like detection with 2% positives: focal loss, final bias initialised to the prior logit, average precision reported; most predictions are rightly negative."""
# expects:
# source: https://arxiv.org/abs/1708.02002
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def txns(n):
    x = torch.randn(n, 12)
    s = 2.2 * torch.relu(x[:, 0] + x[:, 1]) + 1.8 * x[:, 2] * x[:, 3] - 1.5 * x[:, 4]
    y = (s + 0.4 * torch.randn(n) > 8.2).float()
    return x, y


def focal(logits, y, gamma=2.0, alpha=0.75):
    ce = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    p = torch.sigmoid(logits)
    pt = torch.where(y == 1, p, 1 - p)
    at = torch.where(y == 1, torch.tensor(alpha), torch.tensor(1 - alpha))
    return (at * (1 - pt) ** gamma * ce).sum() / y.sum().clamp(min=1)


def average_precision(s, y):
    o = s.argsort(descending=True)
    h = y[o]
    prec = h.cumsum(0) / torch.arange(1, len(h) + 1)
    return (prec * h).sum().item() / h.sum().item()


X, Y = txns(25600)
Xv, Yv = txns(8000)
print(f"positives {Y.mean():.4f}")
net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
nn.init.constant_(net[-1].bias, -math.log((1 - 0.02) / 0.02))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(4):
    for x, y in DataLoader(TensorDataset(X, Y), batch_size=256, shuffle=True):
        loss = focal(net(x).squeeze(1), y)
        opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        s = net(Xv).squeeze(1)
        rec = ((s > 0) & (Yv == 1)).sum().item() / Yv.sum().item()
    print(f"epoch {epoch + 1} loss {loss.item():.4f} val AP {average_precision(s, Yv):.3f} recall@0.5 {rec:.3f}")
