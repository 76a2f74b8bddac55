"""Matrix factorisation where the learning rate was typed 1e-6 instead of 1e-2: gradients are fine, but the loss goes down by a hair in the whole run."""
# expects: lr-too-low, update-ratio-low
# report: folklore
import numpy as np
import torch
import torch.nn as nn

np.random.seed(0)
torch.manual_seed(0)
n_users, n_items, k = 300, 200, 8
U, V = np.random.randn(n_users, k) * 0.6, np.random.randn(n_items, k) * 0.6
users = np.random.randint(0, n_users, 20000)
items = np.random.randint(0, n_items, 20000)
ratings = 3 + (U[users] * V[items]).sum(1) + 0.2 * np.random.randn(20000)
users, items = torch.tensor(users), torch.tensor(items)
ratings = torch.tensor(ratings, dtype=torch.float32)


class MF(nn.Module):
    def __init__(self, n_u, n_i, dim=16):
        super().__init__()
        self.user = nn.Embedding(n_u, dim)
        self.item = nn.Embedding(n_i, dim)
        self.ub = nn.Embedding(n_u, 1)
        self.ib = nn.Embedding(n_i, 1)
        self.mu = nn.Parameter(torch.zeros(1))
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.1)
        for e in (self.ub, self.ib):
            nn.init.zeros_(e.weight)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1) + self.ub(u).squeeze(1) + self.ib(i).squeeze(1) + self.mu


LR = 1e-6
model = MF(n_users, n_items)
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
for epoch in range(5):
    perm = torch.randperm(18000)
    running = 0.0
    for b in perm.split(128):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(users[b], items[b]), ratings[b])
        loss.backward()
        optimizer.step()
        running += loss.item() * len(b)
    with torch.no_grad():
        val = nn.functional.mse_loss(model(users[18000:], items[18000:]), ratings[18000:]).sqrt()
    print(f"Epoch {epoch+1} | train mse {running/18000:.4f} | val rmse {val:.4f}")
