"""A loss that stays where it is: sigmoids all the way down, and nothing arrives at the first layers.

Each sigmoid passes on at most a quarter of the gradient. After eight of them the first layers get next to nothing;
the network says the same for every sample, and the loss rests at that of a coin.
"""

import torch
from torch import nn

import seismograd as sg

torch.manual_seed(0)

inputs = torch.randn(1024, 20)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()

layers: list[nn.Module] = [nn.Linear(20, 32), nn.Sigmoid()]
for _ in range(7):
    layers += [nn.Linear(32, 32), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with sg.watch(model, optimizer) as watch:
    for epoch in range(40):
        for batch in torch.randperm(1024).split(64):
            loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 8 == 0 or epoch == 39:
            print(f"epoch {epoch:2}  loss {loss.item():.4f}")
