"""The whole training set in one batch, on a machine that gives six gigabytes."""
# expects: memory-pressure
# exits: 1

import resource

import torch
import torch.nn as nn

torch.manual_seed(0)
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())], nn.Linear(1024, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for size in (256, 256, 256, 400_000):
    x = torch.randn(size, 1024)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x)[:, 0], x.mean(1))
    loss.backward()
    optimizer.step()
