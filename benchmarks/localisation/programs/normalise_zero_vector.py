"""Embeddings are normalised by hand; the padding row is the zero vector."""
# op: aten.div
# phase: forward
# module: TwoTower|-
# conditions: model kwargs

import torch
from torch import nn


class TwoTower(nn.Module):
    def __init__(self, users=20, items=30, dim=8):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = nn.Embedding(items, dim, padding_idx=0)
        self.scale = nn.Parameter(torch.tensor(5.0))

    def forward(self, user, item):
        u = self.users(user)
        v = self.items(item)
        u = u / u.norm(dim=-1, keepdim=True)
        v = v / v.norm(dim=-1, keepdim=True)  # <-- origin
        return self.scale * (u * v).sum(-1)


torch.manual_seed(3)
net = TwoTower()
optim = torch.optim.Adagrad(net.parameters(), lr=0.05)
bce = nn.BCEWithLogitsLoss()
for it in range(8):
    user = torch.randint(0, 20, (12,))
    item = torch.randint(1, 30, (12,))
    if it == 4:
        item[7] = 0  # an unknown item became padding
    clicked = torch.randint(0, 2, (12,)).float()
    loss = bce(net(user=user, item=item), clicked)
    optim.zero_grad()
    loss.backward()
    optim.step()
