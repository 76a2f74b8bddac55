"""The backbone was frozen for the first phase; the second phase forgets to unfreeze it although its lr was set."""
# expects: frozen-parameter, missing-gradient, unused-parameter

import torch
import torch.nn as nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
head = nn.Linear(64, 3)
x = torch.randn(640, 20)
y = (x[:, :3] * x[:, 3:6]).argmax(1)


def run(optimizer, epochs):
    for epoch in range(epochs):
        for i in torch.randperm(640).split(32):
            loss = nn.functional.cross_entropy(head(backbone(x[i])), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


for p in backbone.parameters():
    p.requires_grad = False
run(torch.optim.Adam(head.parameters(), lr=1e-3), 2)
# phase two: everything, small rate for the backbone; requires_grad was never set back
run(torch.optim.Adam([{"params": backbone.parameters(), "lr": 1e-4}, {"params": head.parameters()}], lr=1e-3), 4)
