"""Poisson regression with L-BFGS: a long step inside the closure makes exp(prediction) overflow."""
# op: aten.exp
# phase: loss
# module: -
# conditions: lbfgs closure loop

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(30, 3)
counts = torch.poisson(torch.exp(0.5 * x[:, :1] + 1))
x[:, 2] *= 40  # a column in another unit
model = nn.Linear(3, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=4.0, max_iter=6)


def closure():
    optimizer.zero_grad()
    eta = model(x * 0.1)
    loss = (torch.exp(eta) - counts * eta).mean()  # <-- origin
    loss.backward()
    return loss


for epoch in range(4):
    loss = optimizer.step(closure)
    print(epoch, loss.item())
