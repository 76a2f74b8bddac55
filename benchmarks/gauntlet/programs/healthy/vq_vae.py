"""VQ-VAE: straight-through, commitment loss, a codebook most of which is unused at first."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VQVAE(nn.Module):
    def __init__(self, codes=32, dim=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, dim))
        self.codebook = nn.Embedding(codes, dim)
        self.codebook.weight.data.uniform_(-0.5, 0.5)
        self.dec = nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, 20))

    def forward(self, x):
        z = self.enc(x)
        index = torch.cdist(z, self.codebook.weight).argmin(1)
        q = self.codebook(index)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return self.dec(z + (q - z).detach()), loss


torch.manual_seed(0)
model = VQVAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
centres = torch.randn(10, 20)
for step in range(300):
    x = centres[torch.randint(0, 10, (64,))] + 0.1 * torch.randn(64, 20)
    recon, vq = model(x)
    loss = F.mse_loss(recon, x) + vq
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, loss.item())
