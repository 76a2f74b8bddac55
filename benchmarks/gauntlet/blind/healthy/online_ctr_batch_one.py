"""Online logistic regression on a hashed click stream, one event per step, time-ordered on purpose, Adagrad with lr 0.1; single losses jump wildly, progressive log-loss falls."""
# expects:
# source: https://research.google/pubs/ad-click-prediction-a-view-from-the-trenches/
import math
import random
import torch
import torch.nn as nn

random.seed(0)
torch.manual_seed(0)
BUCKETS = 512
site_w = {i: random.gauss(0, 1.3) for i in range(20)}
ad_w = {i: random.gauss(0, 1.3) for i in range(30)}
hour_w = [math.sin(h / 24 * 6.28) for h in range(24)]


def stream(n):
    for t in range(n):
        s, a, h = random.randrange(20), random.randrange(30), t // 10 % 24
        z = -0.5 + site_w[s] + ad_w[a] + hour_w[h]
        click = 1.0 if random.random() < 1 / (1 + math.exp(-z)) else 0.0
        feats = [hash_(f"site={s}"), hash_(f"ad={a}"), hash_(f"hour={h}")]
        yield torch.tensor(feats), click, z


def hash_(s):
    v = 0
    for ch in s:
        v = (v * 131 + ord(ch)) % 1000003
    return v % BUCKETS


class HashedLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.EmbeddingBag(BUCKETS, 1, mode="sum")
        self.b = nn.Parameter(torch.zeros(1))
        nn.init.zeros_(self.w.weight)

    def forward(self, idx):
        return self.w(idx.unsqueeze(0)).squeeze(1) + self.b


model = HashedLR()
opt = torch.optim.Adagrad(model.parameters(), lr=0.1)
bce = nn.BCEWithLogitsLoss()
win, best = [], []
for i, (x, y, z) in enumerate(stream(4000)):
    logit = model(x)
    loss = bce(logit, torch.tensor([y]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    win.append(loss.item())
    p = 1 / (1 + math.exp(-z))
    best.append(-(y * math.log(p) + (1 - y) * math.log(1 - p)))
    if (i + 1) % 1000 == 0:
        print(f"events {i + 1} progressive logloss {sum(win) / len(win):.4f} (oracle {sum(best) / len(best):.4f})")
        win, best = [], []
