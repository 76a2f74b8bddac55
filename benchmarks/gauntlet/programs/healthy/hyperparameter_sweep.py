"""A small grid over lr and width; every trial trains a fresh model."""

import itertools

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(700, 8)
y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] + 0.1 * torch.randn(700, 1)


def trial(lr, width):
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(4):
        for i in torch.randperm(500).split(25):
            loss = nn.functional.mse_loss(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return nn.functional.mse_loss(model(x[500:]), y[500:]).item()


results = {setting: trial(*setting) for setting in itertools.product([3e-4, 1e-3, 3e-3], [16, 64])}
print(min(results, key=results.get), results)
