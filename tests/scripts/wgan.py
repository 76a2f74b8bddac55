"""WGAN-GP: five critic steps for each generator step, gradient penalty by double backward."""
# run: status=healthy steps=60
# when: thorough
# A step is over when an optimizer steps again: 12 rounds of C C C C C G are 60.

import torch
from torch import autograd, nn, optim

torch.manual_seed(5)
N_CRITIC, LAMBDA, BATCH = 5, 10.0, 64


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, o))


G, C = mlp(3, 2), mlp(2, 1)
opt_g = optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_c = optim.Adam(C.parameters(), lr=1e-3, betas=(0.0, 0.9))


def real_batch():
    angle = torch.rand(BATCH) * 6.2831853
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(BATCH, 2)


def gradient_penalty(real, fake):
    eps = torch.rand(BATCH, 1)
    x = (eps * real + (1 - eps) * fake).requires_grad_(True)
    grad, = autograd.grad(C(x).sum(), x, create_graph=True)
    return LAMBDA * ((grad.norm(2, dim=1) - 1) ** 2).mean()


for it in range(12):
    for p in C.parameters():
        p.requires_grad_(True)
    for _ in range(N_CRITIC):
        real = real_batch()
        with torch.no_grad():
            fake = G(torch.randn(BATCH, 3))
        loss_c = C(fake).mean() - C(real).mean() + gradient_penalty(real, fake)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()

    for p in C.parameters():
        p.requires_grad_(False)
    loss_g = -C(G(torch.randn(BATCH, 3))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    print(f"{it:3d} critic {loss_c.item():+.5f} generator {loss_g.item():+.5f}")

torch.save({"G": G.state_dict(), "C": C.state_dict()}, "weights.pt")
