"""Curve fitting with L-BFGS."""
# run: status=healthy steps=8
import math

import torch

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)

x = torch.linspace(-1, 1, 100).unsqueeze(1)
y = torch.sin(math.pi * x)

net = torch.nn.Sequential(torch.nn.Linear(1, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
opt = torch.optim.LBFGS(net.parameters(), lr=1, max_iter=20, line_search_fn="strong_wolfe")
calls = 0


def closure():
    global calls
    calls += 1
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    return loss


for it in range(8):
    loss = opt.step(closure)
    print("iter", it, "calls", calls, "loss", repr(loss.item()))

torch.save(net.state_dict(), "weights.pt")
