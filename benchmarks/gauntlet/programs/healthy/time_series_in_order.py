"""Forecasting with windows in the order of time and no shuffling, as one may with a series."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
t = torch.arange(1500) / 20
series = torch.sin(t) + 0.5 * torch.sin(2.3 * t) + 0.1 * torch.randn(1500)
windows = series.unfold(0, 25, 1)
loader = DataLoader(TensorDataset(windows[:, :24].unsqueeze(-1), windows[:, 24:]), batch_size=32, shuffle=False)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 24, batch_first=True)
        self.fc = nn.Linear(24, 1)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(5):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
