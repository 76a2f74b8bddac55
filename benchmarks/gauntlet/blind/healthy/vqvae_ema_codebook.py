"""VQ-VAE with straight-through estimator and EMA codebook kept in buffers: the codebook gets no gradient and no optimizer holds it, argmin blocks the graph - on purpose."""
# expects:
# source: https://arxiv.org/abs/1711.00937
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
tiles = torch.randn(10, 8)


def batch(n):
    k = torch.randint(0, 10, (n, 4))
    return tiles[k].reshape(n, 32) + 0.1 * torch.randn(n, 32)


class VectorQuantizerEMA(nn.Module):
    def __init__(self, K, D, decay=0.95, eps=1e-5):
        super().__init__()
        self.K, self.decay, self.eps = K, decay, eps
        self.register_buffer("embed", torch.randn(K, D))
        self.register_buffer("cluster_size", torch.ones(K))
        self.register_buffer("embed_avg", self.embed.clone())

    def forward(self, z):
        flat = z.reshape(-1, z.size(-1))
        idx = torch.cdist(flat, self.embed).argmin(1)
        q = self.embed[idx].view_as(z)
        if self.training:
            with torch.no_grad():
                oh = F.one_hot(idx, self.K).float()
                self.cluster_size.mul_(self.decay).add_(oh.sum(0), alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(oh.T @ flat, alpha=1 - self.decay)
                n = self.cluster_size.sum()
                cs = (self.cluster_size + self.eps) / (n + self.K * self.eps) * n
                self.embed.copy_(self.embed_avg / cs[:, None])
                # re-seed codes that nobody uses
                dead = self.cluster_size < 0.5
                if dead.any():
                    pick = flat[torch.randint(0, len(flat), (int(dead.sum()),))]
                    self.embed[dead] = pick
                    self.embed_avg[dead] = pick
                    self.cluster_size[dead] = 1.0
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit, idx


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6))
        self.vq = VectorQuantizerEMA(16, 6)
        self.dec = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        z = self.enc(x.view(-1, 4, 8))
        q, commit, idx = self.vq(z)
        return self.dec(q).reshape(-1, 32), commit, idx


m = VQVAE()
opt = torch.optim.Adam(m.parameters(), lr=3e-3)
for i in range(500):
    m.train()
    x = batch(64)
    r, commit, idx = m(x)
    rec = F.mse_loss(r, x)
    loss = rec + 0.25 * commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 100 == 99:
        m.eval()
        with torch.no_grad():
            x = batch(500)
            r, _, idx = m(x)
        print(f"{i + 1} loss {loss.item():.4f} test rec {F.mse_loss(r, x).item():.4f} codes used {idx.unique().numel()}")
