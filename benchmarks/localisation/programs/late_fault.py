"""Ten steps with a schedule; in the eighth a survival time of 0 is read, and its logarithm taken."""
# op: aten.log
# phase: loss
# module: -
# conditions: late scheduler loop

import torch
from torch import nn

torch.manual_seed(7)
times = torch.rand(80, 1) + 0.2
times[61] = 0.0  # patient left on the day of admission
features = torch.randn(80, 5)


class Weibull(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 2), nn.Softplus())

    def forward(self, x):
        shape, scale = self.net(x).chunk(2, dim=1)
        return shape + 0.5, scale + 0.1


model = Weibull()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
for step in range(10):
    rows = slice(8 * step, 8 * step + 8)
    shape, scale = model(features[rows])
    t = times[rows]
    log_t = torch.log(t)  # <-- origin
    hazard = torch.log(shape) - shape * torch.log(scale) + (shape - 1) * log_t
    loss = ((t / scale) ** shape - hazard).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(f"{step} {loss.item():.4f}")
