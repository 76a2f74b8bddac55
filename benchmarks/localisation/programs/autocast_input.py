"""Under fp16 autocast the input itself, a time in milliseconds, does not fit into half precision."""
# op: aten.linear|aten._to_copy|aten.to
# phase: forward
# module: net.0
# conditions: amp fp16 model

import torch
from torch import nn


class Clock(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, stamp):
        return self.net(stamp)  # <-- origin


torch.manual_seed(0)
model = Clock()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    stamp = torch.rand(8, 2) * 60_000
    if step == 4:
        stamp[2, 1] = 70_000
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(stamp)
    loss = nn.functional.mse_loss(out.float(), torch.zeros(8, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
