"""The sign of a similarity loss is wrong: it is minimised towards minus infinity."""
# expects: loss-explosion

import torch
import torch.nn as nn
import torch.nn.functional as F


class TwoTower(nn.Module):
    def __init__(self, users=60, items=90, dim=16):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


torch.manual_seed(0)
model = TwoTower()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(300):
    u = torch.randint(0, 60, (128,))
    pos, neg = (u + torch.randint(0, 5, (128,))) % 90, torch.randint(0, 90, (128,))
    # meant: -F.logsigmoid(positive - negative)
    loss = (model(u, neg) - model(u, pos)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
