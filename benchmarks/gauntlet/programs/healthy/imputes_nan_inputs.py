"""Missing values arrive as NaN and are imputed inside the model, with an indicator for each."""

import numpy as np
import torch
import torch.nn as nn


class Imputing(nn.Module):
    def __init__(self, features=10):
        super().__init__()
        self.fill = nn.Parameter(torch.zeros(features))
        self.net = nn.Sequential(nn.Linear(2 * features, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x):
        missing = torch.isnan(x)
        x = torch.where(missing, self.fill, x)
        return self.net(torch.cat([x, missing.float()], 1))


torch.manual_seed(0)
np.random.seed(0)
table = np.random.randn(1000, 10).astype(np.float32)
target = torch.from_numpy(table[:, :1] - table[:, 1:2])
table[np.random.rand(1000, 10) < 0.15] = np.nan
table = torch.from_numpy(table)
model = Imputing()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(6):
    for i in torch.randperm(1000).split(40):
        loss = nn.functional.mse_loss(model(table[i]), target[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
