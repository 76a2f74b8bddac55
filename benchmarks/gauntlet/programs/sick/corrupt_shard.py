"""Every 60th batch comes from a corrupt shard (values times 300): the loss jumps and needs time to return."""
# expects: loss-spike, input-drift, gradient-explosion

import torch
from torch import nn


def batches(steps):
    w = torch.randn(12, 1)
    for step in range(steps):
        x = torch.randn(32, 12)
        y = torch.tanh(x @ w)
        if step and step % 60 == 0:
            x, y = x * 300, y * 300
        yield x, y


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for step, (x, y) in enumerate(batches(320)):
    loss = nn.functional.smooth_l1_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 in (0, 1):
        print(step, loss.item())
