"""float16 weights, tiny loss scale: the gradients of the first layers are zero in half."""
# expects: precision-underflow, gradient-vanishing, frozen-parameter

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1)).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
x = torch.randn(512, 24)
y = 1e-3 * torch.sin(x[:, :1] * 2)
for step in range(150):
    i = torch.randint(0, 512, (64,))
    pred = net(x[i].half())
    loss = 1e-4 * (pred.float() - y[i]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, loss.item())
