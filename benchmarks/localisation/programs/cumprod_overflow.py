"""Compound growth as a cumulative product over 400 days: one account grows past the largest float."""
# op: aten.cumprod
# phase: forward
# module: growth
# conditions: model

import torch
from torch import nn


class Growth(nn.Module):
    def __init__(self, days):
        super().__init__()
        self.daily = nn.Linear(3, days)

    def forward(self, account):
        factor = 1 + 0.01 * self.daily(account)
        return factor.cumprod(dim=-1)  # <-- origin


class Portfolio(nn.Module):
    def __init__(self, days=400):
        super().__init__()
        self.growth = Growth(days)

    def forward(self, account):
        return torch.log1p(self.growth(account).clamp(min=0)).mean(-1)


torch.manual_seed(0)
model = Portfolio()
opt = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(5):
    account = torch.rand(6, 3)
    if step == 3:
        account[4] = 2000 * torch.sign(model.growth.daily.weight.detach().sum(0))
    loss = model(account).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
