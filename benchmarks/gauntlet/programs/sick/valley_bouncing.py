"""Full-batch SGD just above the stable rate of the steep direction: the loss swings for ever."""
# expects: loss-oscillation, lr-too-high

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(200, 2) * torch.tensor([1.0, 8.0])
y = (x @ torch.tensor([[3.0], [-2.0]])).clamp(-20, 20)
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.06)
for epoch in range(400):
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    opt.step()
    if epoch % 40 == 0:
        print(epoch, loss.item())
