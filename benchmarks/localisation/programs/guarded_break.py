"""A loop that ends at the first loss that is not finite: the probability of a class is exactly 0."""
# op: aten.log
# phase: loss
# module: -
# conditions: loop guarded
import math
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(-1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(20):
    x = torch.randn(8, 4) * (1 if i < 6 else 1e4)
    y = torch.randint(0, 3, (8,))
    p = net(x)
    loss = -torch.log(p[torch.arange(8), y]).mean()  # <-- origin
    if math.isnan(loss.item()) or math.isinf(loss.item()):
        print("Loss is {}, stopping training".format(loss.item()))
        break
    opt.zero_grad()
    loss.backward()
    opt.step()
