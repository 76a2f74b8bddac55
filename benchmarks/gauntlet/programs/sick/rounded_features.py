"""Features are divided by the wrong constant and rounded: the output no longer depends on the input."""
# expects: constant-output, missing-gradient, unused-parameter, dead-units

import torch
import torch.nn as nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        h = self.features(x)
        h = (h - h.mean(1, keepdim=True)) / 1e6  # "normalise", with the wrong constant
        return self.head(torch.round(h))


torch.manual_seed(0)
model = Regressor()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(200):
    x = torch.randn(48, 8)
    y = x[:, :1] - 2 * x[:, 1:2] + 0.5
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(step, loss.item())
