"""Regression on 60 points with a polynomial basis; the test loss turns up while training goes on."""
# expects: overfitting

import torch
from torch import nn

torch.manual_seed(0)


def features(t):
    return torch.cat([torch.cos(k * t) for k in range(25)], 1)


t_train, t_test = torch.rand(60, 1) * 3, torch.rand(200, 1) * 3
f = lambda t: torch.sin(2 * t)
y_train, y_test = f(t_train) + 0.5 * torch.randn_like(t_train), f(t_test) + 0.5 * torch.randn_like(t_test)
model = nn.Sequential(nn.Linear(25, 200), nn.Tanh(), nn.Linear(200, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
mse = nn.MSELoss()
for epoch in range(800):
    model.train()
    loss = mse(model(features(t_train)), y_train)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        model.eval()
        with torch.no_grad():
            test = mse(model(features(t_test)), y_test)
        if epoch % 100 == 0:
            print(epoch, loss.item(), test.item())
