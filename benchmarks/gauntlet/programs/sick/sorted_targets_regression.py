"""Rows sorted by the target (an ORDER BY in the query), sliced into batches without shuffling."""
# expects: unshuffled-data

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(1200, 6)
y = x[:, :1] * 2 + x[:, 1:2] + 0.3 * torch.randn(1200, 1)
order = y.squeeze(1).argsort()
x, y = x[order], y[order]
model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(6):
    for i in range(0, len(x), 30):
        loss = nn.functional.mse_loss(model(x[i : i + 30]), y[i : i + 30])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
