"""Wasserstein GAN with gradient penalty (create_graph, two backwards of one graph)."""

import torch
from torch import autograd, nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-4, betas=(0.5, 0.9))


def real_batch(n):
    angle = torch.randint(0, 8, (n,)) * torch.pi / 4
    return torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.05 * torch.randn(n, 2)


def gradient_penalty(real, fake):
    alpha = torch.rand(len(real), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    grad = autograd.grad(D(mixed).sum(), mixed, create_graph=True)[0]
    return 10 * ((grad.norm(2, dim=1) - 1) ** 2).mean()


for it in range(80):
    for p in D.parameters():
        p.requires_grad = True
    for _ in range(5):
        real, fake = real_batch(64), G(torch.randn(64, 8)).detach()
        d_loss = D(fake).mean() - D(real).mean() + gradient_penalty(real, fake)
        D.zero_grad()
        d_loss.backward()
        opt_d.step()
    for p in D.parameters():
        p.requires_grad = False
    g_loss = -D(G(torch.randn(64, 8))).mean()
    G.zero_grad()
    g_loss.backward()
    opt_g.step()
    if it % 30 == 0:
        print(it, d_loss.item(), g_loss.item())
