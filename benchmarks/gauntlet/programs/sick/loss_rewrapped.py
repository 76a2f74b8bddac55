"""total = torch.tensor(losses, requires_grad=True).mean(): backward works, nothing arrives at the model."""
# expects: detached-loss, missing-gradient, unused-parameter, frozen-parameter, missing-step

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(256, 8)
y = x.sum(1, keepdim=True)
for epoch in range(30):
    losses = []
    for i in range(0, 256, 64):
        losses.append(nn.functional.mse_loss(model(x[i : i + 64]), y[i : i + 64]))
    loss = torch.tensor(losses, requires_grad=True).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 5 == 0:
        print(epoch, loss.item())
