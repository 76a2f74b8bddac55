"""Shuffles with `random`, augments with numpy, drops out with torch: three generators, each seeded once."""

# run: status=healthy steps=24
# when: thorough

import random

import numpy as np
import torch
from torch import nn

random.seed(1)
np.random.seed(2)
torch.manual_seed(3)

samples = [(x / 20, x / 10) for x in range(-12, 12)]
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(4):
    random.shuffle(samples)
    for start in range(0, 24, 4):
        x, y = (torch.tensor(column).unsqueeze(1) for column in zip(*samples[start : start + 4]))
        x = x + torch.from_numpy(np.random.normal(0, 0.01, x.shape)).float()
        if random.random() < 0.5:
            x, y = -x, -y
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, samples[0], f"{loss.item():.6f}")
print(random.random(), np.random.rand(), torch.rand(1).item())
torch.save(model.state_dict(), "weights.pt")
