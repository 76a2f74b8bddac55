"""An adjacency matrix is normalised in the loop, and a node has no neighbour."""
# op: aten.pow
# phase: input|loss
# module: -
# conditions: loop input
import torch
from torch import nn


def normalise(adj):
    deg = adj.sum(1)
    d = deg ** -0.5  # <-- origin
    return d[:, None] * adj * d[None, :]


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(4, 8)
        self.w2 = nn.Linear(8, 2)

    def forward(self, x, a):
        x = torch.relu(a @ self.w1(x))
        return a @ self.w2(x)


torch.manual_seed(0)
model = GCN()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(5):
    adj = (torch.rand(10, 10) > 0.6).float()
    adj = ((adj + adj.t()) > 0).float()
    adj.fill_diagonal_(1.0)
    if epoch == 3:
        adj[4, :] = 0
        adj[:, 4] = 0
    a = normalise(adj)
    logits = model(torch.randn(10, 4), a)
    loss = nn.functional.cross_entropy(logits, torch.arange(10) % 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
