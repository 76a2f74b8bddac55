"""GAN on a ring of Gaussians: only the generator's gradients are cleared; the discriminator steps on all it ever accumulated, also from the generator's backward."""
# expects: missing-zero-grad
# report: folklore
import math
import torch
import torch.nn as nn

torch.manual_seed(0)
device = "cpu"


def real(n):
    k = torch.randint(8, (n,)).float() * (2 * math.pi / 8)
    return torch.stack([k.cos(), k.sin()], 1) + 0.05 * torch.randn(n, 2)


G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)).to(device)
optG = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
optD = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
bs = 64
ones, zeros = torch.ones(bs, 1), torch.zeros(bs, 1)

for it in range(420):
    # ---- discriminator ----
    x = real(bs)
    fake = G(torch.randn(bs, 8))
    lossD = bce(D(x), ones) + bce(D(fake.detach()), zeros)
    lossD.backward()
    optD.step()

    # ---- generator ----
    optG.zero_grad()
    lossG = bce(D(fake), ones)
    lossG.backward()
    optG.step()

    if it % 60 == 0:
        r = fake.detach().norm(dim=1)
        print(f"[{it}] D {lossD.item():.3f} G {lossG.item():.3f} radius {r.mean():.3f}+-{r.std():.3f}")
