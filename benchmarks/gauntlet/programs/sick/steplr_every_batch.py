"""StepLR(step_size=2) stepped once a batch: after 40 batches the rate is 1e-22."""
# expects: scheduler-order, lr-jump, lr-too-low
# report: https://github.com/ivadomed/ivadomed/pull/55

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(1000, 14)
y = (x[:, :3] * x[:, 3:6]).argmax(1)
net = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
for epoch in range(6):
    for i in torch.randperm(1000).split(25):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        loss.backward()
        optimizer.step()
        scheduler.step()
    print(epoch, scheduler.get_last_lr(), loss.item())
