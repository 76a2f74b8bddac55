"""Contrastive loss takes the Euclidean distance as sqrt(sum of squares); genuine pairs that are the same scan have distance 0, whose gradient is NaN."""
# expects: nonfinite-gradient, nonfinite-parameter
# report: https://github.com/adambielski/siamese-triplet/issues/18
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(2)
rng = np.random.default_rng(2)
PEOPLE, PER, DIM = 40, 10, 30
centers = rng.normal(0, 1, (PEOPLE, DIM))
scans = (centers[:, None] + 0.5 * rng.normal(0, 1, (PEOPLE, PER, DIM))).astype(np.float32)


class Pairs(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        r = np.random.default_rng(i)
        a = r.integers(PEOPLE)
        if i % 2:
            b, same = a, 1.0
        else:
            b, same = (a + 1 + r.integers(PEOPLE - 1)) % PEOPLE, 0.0
        return scans[a, r.integers(PER)], scans[b, r.integers(PER)], np.float32(same)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, za, zb, same):
        d = (za - zb).pow(2).sum(1).sqrt()
        return (same * d.pow(2) + (1 - same) * (self.margin - d).clamp(min=0).pow(2)).mean()


embed = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, 16))
criterion = ContrastiveLoss()
optimizer = torch.optim.Adam(embed.parameters(), lr=1e-3)
loader = DataLoader(Pairs(8000), batch_size=50, shuffle=True)

for epoch in range(3):
    running = []
    for a, b, same in loader:
        optimizer.zero_grad()
        loss = criterion(embed(a), embed(b), same)
        loss.backward()
        optimizer.step()
        running.append(loss.item())
    print(f"Epoch {epoch}: mean loss {np.mean(running):.4f}, last {running[-1]:.4f}")
