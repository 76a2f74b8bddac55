"""SimCLR: NT-Xent over the batch (samples are meant to meet in the loss)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
projector = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))
optimizer = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=1e-3)
data = torch.randn(600, 24)


def nt_xent(a, b, temperature=0.5):
    z = F.normalize(torch.cat([a, b]), dim=1)
    sim = z @ z.T / temperature
    sim.fill_diagonal_(float("-inf"))
    n = len(a)
    target = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return F.cross_entropy(sim, target)


for epoch in range(8):
    for i in torch.randperm(600).split(40):
        x = data[i]
        views = [x + 0.3 * torch.randn_like(x) for _ in range(2)]
        loss = nt_xent(*(projector(encoder(v)) for v in views))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
