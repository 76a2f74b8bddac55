"""Task heads in a plain dict: created, used, never trained."""
# expects: unregistered-parameter, unoptimized-parameter

import torch
from torch import nn


class MultiHead(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
        self.heads = {name: nn.Linear(64, 1) for name in tasks}

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


torch.manual_seed(0)
net = MultiHead(["price", "demand", "returns"])
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
w = torch.randn(16, 3)
for step in range(200):
    x = torch.randn(32, 16)
    y = torch.tanh(x @ w)
    out = net(x)
    loss = sum(nn.functional.mse_loss(p.squeeze(1), y[:, k]) for k, p in enumerate(out.values()))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
