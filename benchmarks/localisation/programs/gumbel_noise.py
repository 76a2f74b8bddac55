"""Gumbel noise in half precision: torch.rand is exactly 0 once in two thousand draws, and log(0) is -inf."""
# op: aten.log
# phase: forward
# module: codebook
# conditions: rng half model

import torch
from torch import nn


class Codebook(nn.Module):
    def __init__(self, dim, codes, temperature=1.0):
        super().__init__()
        self.logits = nn.Linear(dim, codes)
        self.codes = nn.Parameter(torch.randn(codes, dim))
        self.temperature = temperature

    def forward(self, h):
        logits = self.logits(h)
        u = torch.rand(logits.shape, dtype=torch.float16).float()
        inner = -torch.log(u)  # <-- origin
        gumbel = -torch.log(inner + 1e-6)
        soft = ((logits + gumbel) / self.temperature).softmax(-1)
        usage = (logits * inner).mean()
        return soft @ self.codes, usage


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(6, 8)
        self.codebook = Codebook(8, 16)
        self.dec = nn.Linear(8, 6)

    def forward(self, x):
        q, usage = self.codebook(torch.tanh(self.enc(x)))
        return self.dec(q), usage


torch.manual_seed(0)
vq = VQ()
opt = torch.optim.Adam(vq.parameters(), lr=1e-3)
for step in range(30):
    x = torch.randn(6, 6)
    rec, usage = vq(x)
    loss = nn.functional.mse_loss(rec, x) + 1e-4 * usage
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not torch.isfinite(loss):
        break
