"""Poisson regression: counts of some hundreds, a log link, PoissonNLLLoss (negative values)."""

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(900, 6)
rate = torch.exp(3 + 0.5 * x[:, :1] - 0.3 * x[:, 1:2])
y = torch.poisson(rate)
net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
net[-1].bias.data.fill_(y.mean().log())
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
loss_fn = nn.PoissonNLLLoss(log_input=True)
for epoch in range(8):
    for i in torch.randperm(900).split(30):
        loss = loss_fn(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
