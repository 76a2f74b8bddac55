"""Domain shift by design: a second task follows the first after half of the run, on a new head."""

import torch
import torch.nn as nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(12, 48), nn.ReLU())
heads = nn.ModuleList([nn.Linear(48, 3), nn.Linear(48, 3)])
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=2e-3)
for task in range(2):
    rule = torch.randn(12, 3)
    for step in range(200):
        x = torch.randn(32, 12)
        y = (x @ rule).argmax(1)
        loss = nn.functional.cross_entropy(heads[task](trunk(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(task, loss.item())
