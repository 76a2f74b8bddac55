"""A contrastive loss from another file: the embeddings are not normalised, exp overflows."""
# op: aten.exp
# phase: loss
# module: -
# file: shared/losses.py
# conditions: loop helper called-several-times

import torch
from torch import nn

from shared.losses import l2, nt_xent

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(encoder.parameters(), lr=0.2)


def augment(x):
    return x + 0.05 * torch.randn_like(x)


for step in range(12):
    images = torch.randn(10, 12)
    loss = nt_xent(encoder(augment(images)), encoder(augment(images)), temperature=0.2)
    loss = loss + 1e-5 * l2(encoder.parameters())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step:2d} {loss.item():.4f}")
