"""optimizer.step() sits under an if that is true only at the beginning."""
# expects: missing-step

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x = torch.randn(800, 6)
y = (x.prod(1) > 0).long()
best = float("inf")
for epoch in range(8):
    for i in torch.randperm(800).split(20):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        if loss.item() < best * 0.98:  # meant for saving the checkpoint
            best = loss.item()
            optimizer.step()
    print(epoch, loss.item(), best)
