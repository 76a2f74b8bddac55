"""fp16 autocast, GradScaler, unscale_ and clipping: the fault is a root in the model's backward, not the scale."""
# op: aten.sqrt
# phase: backward
# module: energy
# conditions: amp fp16 scaler clipping model

import torch
from torch import nn


class Energy(nn.Module):
    def forward(self, h):
        return torch.sqrt(h.float().square().sum(-1, keepdim=True))  # <-- origin


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8, bias=False)
        self.energy = Energy()
        self.out = nn.Linear(1, 1)

    def forward(self, x):
        return self.out(self.energy(self.fc(x)))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(8):
    x = torch.randn(8, 6)
    if step >= 4:
        x[5] = 0  # this sensor is off from here on
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(x).float(), torch.ones(8, 1))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
