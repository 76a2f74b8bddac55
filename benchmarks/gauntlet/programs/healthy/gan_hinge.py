"""Hinge GAN with spectral norm and two time scales."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
D = nn.Sequential(
    spectral_norm(nn.Linear(2, 48)), nn.LeakyReLU(0.1), spectral_norm(nn.Linear(48, 48)), nn.LeakyReLU(0.1),
    spectral_norm(nn.Linear(48, 1)),
)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=4e-4, betas=(0.0, 0.9))
for step in range(250):
    real = torch.randn(64, 2) * 0.2 + torch.randint(0, 2, (64, 1)) * 2 - 1
    fake = G(torch.randn(64, 6))
    d_loss = F.relu(1 - D(real)).mean() + F.relu(1 + D(fake.detach())).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = -D(fake).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    if step % 50 == 0:
        print(step, d_loss.item(), g_loss.item())
