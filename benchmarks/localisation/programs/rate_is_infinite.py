"""A warm-up formula of the user's own divides by what is left of it: the rate is Inf for one step."""
# op: -
# phase: optimizer
# module: -|0|2
# line: any
# conditions: optimizer learning-rate

import numpy as np
import torch
from torch import nn

np.seterr(all="ignore")
torch.manual_seed(0)
TOTAL = 5
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(8):
    for group in opt.param_groups:
        group["lr"] = float(np.float64(0.01) / np.float64(abs(TOTAL - step)))
    x = torch.randn(16, 4)
    loss = nn.functional.mse_loss(net(x), x.mean(1, keepdim=True))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
