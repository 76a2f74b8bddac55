"""A run that has converged and goes on: the loss is flat because there is nothing left to learn."""

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(600, 5)
y = x @ torch.tensor([[1.0], [2.0], [-1.0], [0.5], [0.0]]) + 0.3 * torch.randn(600, 1)
model = nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(40):
    for i in torch.randperm(600).split(30):
        loss = nn.functional.mse_loss(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 10 == 0:
        print(epoch, loss.item())
