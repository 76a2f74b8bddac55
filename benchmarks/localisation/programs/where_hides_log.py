"""torch.where throws log(0) away in forward; in backward 0 * inf comes back as NaN."""
# op: aten.log
# phase: backward|forward
# module: -
# conditions: loop where absorbed

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3), nn.Softmax(dim=1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)


def entropy(p):
    log = torch.log(p)  # <-- origin
    return -torch.where(p > 0, p * log, torch.zeros_like(p)).sum(1)


for step in range(8):
    x = torch.randn(16, 5)
    if step == 5:
        with torch.no_grad():
            model[2].bias[1] = -150.0  # this action is not allowed any more
    loss = entropy(model(x)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
