"""Biases 'initialised' at -10 before ReLUs: nothing fires on any sample."""
# expects: dead-units, bad-initialization, constant-output

import torch
import torch.nn as nn


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.xavier_uniform_(m.weight)
        m.bias.data.fill_(-10)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
net[:3].apply(init_weights)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(600, 12)
y = x[:, :3].argmax(1)
for epoch in range(6):
    for i in torch.randperm(600).split(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
