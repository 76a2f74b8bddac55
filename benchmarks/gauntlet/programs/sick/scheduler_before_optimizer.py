"""scheduler.step() before optimizer.step(), the order of PyTorch 1.0."""
# expects: scheduler-order

import warnings

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import MultiStepLR

warnings.filterwarnings("ignore")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = MultiStepLR(optimizer, milestones=[4, 8], gamma=0.1)
x = torch.randn(640, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
for epoch in range(10):
    scheduler.step()
    for i in torch.randperm(640).split(32):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, optimizer.param_groups[0]["lr"], loss.item())
