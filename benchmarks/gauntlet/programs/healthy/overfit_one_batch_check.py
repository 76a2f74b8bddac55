"""The sanity check of every recipe: overfit one batch, then train for real."""

import torch
import torch.nn as nn


def build():
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


torch.manual_seed(0)
x = torch.randn(1000, 16)
y = (x[:, :4] + 0.3 * torch.randn(1000, 4)).argmax(1)
model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    loss = nn.functional.cross_entropy(model(x[:32]), y[:32])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("one batch:", loss.item())
model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(5):
    for i in torch.randperm(1000).split(40):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
