"""A gated network whose gates are initialised with std 30: sigmoid is 0 or 1 everywhere."""
# expects: saturated-units, bad-initialization

import torch
import torch.nn as nn


class Gated(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.value = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        nn.init.normal_(self.gate.weight, std=30.0)

    def forward(self, x):
        return torch.sigmoid(self.gate(x)) * self.value(x)


torch.manual_seed(0)
model = nn.Sequential(Gated(), Gated(), nn.Linear(24, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(250):
    x = torch.randn(64, 24)
    y = torch.sin(x[:, :1]) * x[:, 1:2]
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, loss.item())
