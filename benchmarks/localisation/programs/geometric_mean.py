"""exp(mean(log)) of probabilities: log(0) is -inf, exp makes it a harmless 0, and backward divides 0 by 0."""
# op: aten.log
# phase: backward
# module: -
# conditions: loop absorbed

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 3), nn.Softmax(dim=1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)


def geometric_mean(p):
    return p.log().mean(dim=1).exp()  # <-- origin


for step in range(6):
    x = torch.randn(8, 5)
    if step == 4:
        with torch.no_grad():
            net[2].bias[1] = -150
    loss = (1 - geometric_mean(net(x))).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
