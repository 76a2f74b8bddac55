"""Ratings from 1 to 5 by user and item embeddings with biases."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class MF(nn.Module):
    def __init__(self, users, items, dim=8):
        super().__init__()
        self.u, self.i = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.ub, self.ib = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.tensor(3.0))
        for e in (self.u, self.i):
            nn.init.normal_(e.weight, std=0.1)
        for e in (self.ub, self.ib):
            nn.init.zeros_(e.weight)

    def forward(self, u, i):
        return self.mean + self.ub(u).squeeze(1) + self.ib(i).squeeze(1) + (self.u(u) * self.i(i)).sum(1)


torch.manual_seed(0)
users, items = torch.randint(0, 150, (4000,)), torch.randint(0, 80, (4000,))
taste, kind = torch.randn(150, 3), torch.randn(80, 3)
ratings = (3 + (taste[users] * kind[items]).sum(1) * 0.6 + 0.3 * torch.randn(4000)).round().clamp(1, 5)
loader = DataLoader(TensorDataset(users, items, ratings), batch_size=64, shuffle=True)
model = MF(150, 80)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-5)
for epoch in range(5):
    for u, i, r in loader:
        loss = nn.functional.mse_loss(model(u, i), r)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
