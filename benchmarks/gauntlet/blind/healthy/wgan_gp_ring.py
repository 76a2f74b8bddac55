"""WGAN-GP on an 4-mode ring: critic loss strongly negative at first and shrinking in magnitude, five critic steps per generator step, double backward."""
# expects:
# source: https://arxiv.org/abs/1704.00028
import math
import torch
import torch.nn as nn
from torch import autograd

torch.manual_seed(1)


def real_batch(n):
    k = torch.randint(0, 4, (n,)).float() * math.pi / 2
    return torch.stack([k.cos(), k.sin()], 1) * 2 / 1.414 + 0.15 * torch.randn(n, 2)


G = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 2))
D = nn.Sequential(nn.Linear(2, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))
optD = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))
optG = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
LAMBDA, B = 1.0, 128


def gradient_penalty(real, fake):
    a = torch.rand(len(real), 1)
    x = (a * real + (1 - a) * fake).requires_grad_(True)
    g = autograd.grad(D(x).sum(), x, create_graph=True)[0]
    return LAMBDA * ((g.norm(2, dim=1) - 1) ** 2).mean()


for it in range(450):
    for p in D.parameters():
        p.requires_grad = True
    for _ in range(5):
        real = real_batch(B)
        with torch.no_grad():
            fake = G(torch.randn(B, 8))
        D.zero_grad()
        w = D(fake).mean() - D(real).mean()
        d_loss = w + gradient_penalty(real, fake)
        d_loss.backward()
        optD.step()
    for p in D.parameters():
        p.requires_grad = False
    G.zero_grad()
    g_loss = -D(G(torch.randn(B, 8))).mean()
    g_loss.backward()
    optG.step()
    if it % 50 == 49:
        with torch.no_grad():
            s = G(torch.randn(1000, 8))
        c = torch.stack([torch.tensor([math.cos(k * math.pi / 2), math.sin(k * math.pi / 2)]) for k in range(4)]) * 1.414
        d = torch.cdist(s, c).min(1)
        modes = (torch.bincount(d.indices, minlength=4) > 100).sum().item()
        print(f"iter {it + 1} D {d_loss.item():.3f} W {-w.item():.3f} G {g_loss.item():.3f} modes {modes}/4 mean distance to mode {d.values.mean():.3f}")
