"""weight_decay and lr swapped on the command line: AdamW shrinks every weight by a fifth a step."""
# expects: weight-decay-dominates, loss-plateau, lr-too-high

import argparse

import torch
import torch.nn as nn

p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.01)
p.add_argument("--wd", type=float, default=20.0)
a = p.parse_args()

torch.manual_seed(0)
x = torch.randn(1000, 16)
y = (x[:, 0] * x[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
opt = torch.optim.AdamW(net.parameters(), lr=a.lr, weight_decay=a.wd)
for epoch in range(10):
    for i in torch.randperm(1000).split(50):
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
