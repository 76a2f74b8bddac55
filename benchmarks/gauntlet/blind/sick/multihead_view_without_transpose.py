"""Hand-written attention gets (time, batch, dim) by .view() instead of .transpose(0, 1): rows of different samples are mixed into one sequence."""
# expects: batch-mixing
# report: https://x.com/karpathy/status/1013244313327681536
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
V, T, D = 10, 8, 32


class Attn(nn.Module):
    """expects (T, B, D)"""

    def __init__(self, d, heads=4):
        super().__init__()
        self.h, self.dk = heads, d // heads
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)

    def forward(self, x):
        t, b, d = x.shape
        q, k, v = self.qkv(x).view(t, b, 3, self.h, self.dk).permute(2, 1, 3, 0, 4)
        a = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.dk), -1) @ v
        return self.proj(a.permute(2, 0, 1, 3).reshape(t, b, d))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        self.pos = nn.Parameter(0.1 * torch.randn(T, 1, D))
        self.attn = Attn(D)
        self.ff = nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, D))
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.out = nn.Linear(D, V)

    def forward(self, x):  # (B, T)
        b = x.size(0)
        h = self.emb(x).view(T, b, D) + self.pos
        h = self.n1(h + self.attn(h))
        h = self.n2(h + self.ff(h))
        return self.out(h.mean(0))


def batch(n):
    x = torch.randint(1, V, (n, T))
    return x, x.max(1).values  # the largest token


model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(400):
    x, y = batch(32)
    out = model(x)
    loss = F.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"{step:4d} loss {loss.item():.4f} acc {(out.argmax(1) == y).float().mean():.3f}")
