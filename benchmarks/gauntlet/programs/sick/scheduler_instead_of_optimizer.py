"""scheduler.step() was taken for something that also steps the optimizer."""
# expects: missing-step, scheduler-order
# report: https://github.com/pytorch/pytorch/issues/3814

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import ExponentialLR

torch.manual_seed(0)


def make_batch(n=32):
    x = torch.randn(n, 5)
    return x, (x ** 2).sum(1, keepdim=True)


net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scheduler = ExponentialLR(optimizer, gamma=0.999)
for it in range(150):
    x, y = make_batch()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    scheduler.step()
    if it % 30 == 0:
        print(it, loss.item())
