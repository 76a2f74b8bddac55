"""A GAN whose discriminator is cleared by nobody: optimizer_G.zero_grad() is called twice instead."""
# expects: missing-zero-grad

import torch
import torch.nn as nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer_G = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
for step in range(200):
    real = torch.randn(64, 2) * 0.3 + torch.tensor([1.0, -1.0])
    fake = G(torch.randn(64, 4))

    optimizer_G.zero_grad()
    d_loss = bce(D(real), ones) + bce(D(fake.detach()), zeros)
    d_loss.backward()
    optimizer_D.step()

    optimizer_G.zero_grad()
    g_loss = bce(D(fake), ones)
    g_loss.backward()
    optimizer_G.step()
    if step % 50 == 0:
        print(step, d_loss.item(), g_loss.item())
