"""A PINN: derivatives of the output with respect to the input, create_graph, several loss terms."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(300):
    t = (torch.rand(64, 1) * 2).requires_grad_(True)
    u = net(t)
    du = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
    residual = (du + 2 * u).pow(2).mean()
    boundary = (net(torch.zeros(1, 1)) - 1).pow(2).mean()
    loss = residual + boundary
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, loss.item())
