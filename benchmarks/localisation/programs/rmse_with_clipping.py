"""sqrt of a mean squared error of exactly 0; clipping then spreads the NaN over all gradients."""
# op: aten.sqrt
# phase: backward
# module: -
# conditions: clipping loop

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def rmse(prediction, target):
    return torch.sqrt(((prediction - target) ** 2).mean())  # <-- origin


for step in range(6):
    x = torch.randn(10, 3)
    y = x.abs().sum(1, keepdim=True)
    if step == 4:  # night: no sun, no power, and the model is right
        x = torch.zeros(10, 3)
        y = torch.zeros(10, 1)
    loss = rmse(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step} loss {loss.item():.3f} norm {norm.item():.3f}")
