"""Tabular regression on a sensor log; a few readings were never recorded."""
# expects: nonfinite-input
# report: https://discuss.pytorch.org, "loss is nan from the first batch", the CSV had empty cells

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class SensorLog(Dataset):
    def __init__(self, rows=600):
        rng = np.random.default_rng(3)
        table = rng.normal(size=(rows, 9)).astype(np.float32)
        self.y = (table[:, 0] - 0.5 * table[:, 4]).astype(np.float32)
        table[[211, 340, 555], [2, 7, 2]] = np.nan  # empty cells of the CSV
        self.x = table

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), torch.tensor([self.y[i]])


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
criterion = nn.MSELoss()
for epoch in range(3):
    for x, y in DataLoader(SensorLog(), batch_size=20, shuffle=True):
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
    print(epoch, loss.item())
