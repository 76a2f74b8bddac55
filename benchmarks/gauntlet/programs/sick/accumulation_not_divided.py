"""Gradient accumulation over 16 micro-batches without dividing the loss."""
# expects: accumulation-mismatch
# report: https://github.com/hirofumi0810/neural_sp/issues/168

import torch
import torch.nn as nn

ACCUMULATE = 16
torch.manual_seed(0)
x = torch.randn(2048, 10)
y = torch.sin(x[:, :1]) + x[:, 1:2]
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer.zero_grad()
for epoch in range(4):
    for step, i in enumerate(torch.randperm(2048).split(8)):
        loss = nn.functional.mse_loss(model(x[i]), y[i])
        loss.backward()
        if (step + 1) % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(epoch, loss.item())
