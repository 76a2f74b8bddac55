"""The loss's softmax is written as exp / sum(exp) in the loop, and logits of 100 overflow."""
# op: aten.exp
# phase: loss
# module: -
# conditions: loop amp bf16

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    x = torch.randn(16, 8)
    y = torch.randint(0, 4, (16,))
    if step == 4:
        x[3] *= 800
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(x)
    e = torch.exp(logits.float())  # <-- origin
    p = e / e.sum(1, keepdim=True)
    loss = nn.functional.nll_loss(torch.log(p + 1e-9), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
