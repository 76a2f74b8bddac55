"""BYOL: a second network that never gets gradients and sits in no optimizer but moves by EMA; its parameters drift without an optimizer, as designed."""
# expects:
# source: https://arxiv.org/abs/2006.07733
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)


def bars(n):
    """12x12 images of one horizontal or vertical or diagonal bar"""
    y = torch.randint(0, 4, (n,))
    x = torch.zeros(n, 1, 12, 12)
    ar = torch.arange(12)
    for i in range(n):
        o = int(torch.randint(2, 10, (1,)))
        if y[i] == 0:
            x[i, 0, o] = 1
        elif y[i] == 1:
            x[i, 0, :, o] = 1
        elif y[i] == 2:
            x[i, 0, ar, (ar + o) % 12] = 1
        else:
            x[i, 0, ar, (o - ar) % 12] = 1
    return x, y


def view(x):
    s = torch.randint(-2, 3, (2,)).tolist()
    return torch.roll(x, s, (2, 3)) * (torch.rand(len(x), 1, 1, 1) * 0.6 + 0.7) + 0.15 * torch.randn_like(x)


enc = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
                    nn.AdaptiveAvgPool2d(2), nn.Flatten())
proj = nn.Sequential(nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
pred = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
online = nn.Sequential(enc, proj)
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad_(False)
opt = torch.optim.AdamW([*online.parameters(), *pred.parameters()], lr=2e-3, weight_decay=1e-5)
X, Y = bars(2000)
steps = 250
for step in range(steps):
    x = X[torch.randint(0, 2000, (96,))]
    v1, v2 = view(x), view(x)
    q1, q2 = pred(online(v1)), pred(online(v2))
    with torch.no_grad():
        t1, t2 = target(v1), target(v2)
    loss = (2 - 2 * F.cosine_similarity(q1, t2).mean()) + (2 - 2 * F.cosine_similarity(q2, t1).mean())
    opt.zero_grad()
    loss.backward()
    opt.step()
    m = 0.99 + 0.01 * step / steps
    with torch.no_grad():
        for pt, po in zip(target.parameters(), online.parameters()):
            pt.lerp_(po, 1 - m)
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
enc.eval()
Xt, Yt = bars(600)
with torch.no_grad():
    f, ft = enc(X), enc(Xt)
W = torch.linalg.lstsq(torch.cat([f, torch.ones(len(f), 1)], 1), F.one_hot(Y, 4).float()).solution
acc = ((torch.cat([ft, torch.ones(len(ft), 1)], 1) @ W).argmax(1) == Yt).float().mean()
print(f"least-squares probe accuracy {acc:.3f}")
