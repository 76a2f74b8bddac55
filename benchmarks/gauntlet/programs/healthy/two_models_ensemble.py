"""An ensemble: three models, three optimizers, trained in the same loop on bootstrap samples."""

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(600, 6)
y = torch.sin(x[:, :1]) * x[:, 1:2] + 0.1 * torch.randn(600, 1)
members = [nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)) for _ in range(3)]
optimizers = [torch.optim.Adam(m.parameters(), lr=3e-3) for m in members]
for step in range(250):
    for member, optimizer in zip(members, optimizers):
        i = torch.randint(0, 600, (32,))
        loss = nn.functional.mse_loss(member(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    print(nn.functional.mse_loss(torch.stack([m(x) for m in members]).mean(0), y).item())
