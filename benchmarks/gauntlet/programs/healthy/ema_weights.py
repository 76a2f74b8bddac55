"""An exponential moving average of the weights is kept and evaluated; the model itself trains on."""

import copy

import torch
import torch.nn as nn


class EMA:
    def __init__(self, model, decay=0.98):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for a, b in zip(self.model.state_dict().values(), model.state_dict().values()):
            if a.dtype.is_floating_point:
                a.lerp_(b, 1 - self.decay)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 3))
ema = EMA(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
x = torch.randn(900, 10)
y = (x[:, :3] + 0.5 * torch.randn(900, 3)).argmax(1)
for epoch in range(6):
    model.train()
    for i in torch.randperm(700).split(35):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
    with torch.no_grad():
        print(epoch, nn.functional.cross_entropy(ema.model(x[700:]), y[700:]).item())
