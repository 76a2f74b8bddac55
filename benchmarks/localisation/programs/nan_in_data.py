"""One sample of the data set has a NaN where the file had an empty cell."""
# op: -
# phase: input
# module: -
# conditions: data loader

import io

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

rng = np.random.default_rng(0)
table = rng.normal(size=(48, 4)).round(3)
lines = [",".join(map(str, row)) for row in table]
lines[29] = lines[29].rsplit(",", 1)[0] + ","  # an empty cell
CSV = io.StringIO("\n".join(lines))


class Table(Dataset):
    def __init__(self, file):
        rows = np.genfromtxt(file, delimiter=",", dtype=np.float32)
        self.x, self.y = rows, (np.nan_to_num(rows).sum(1) > 0).astype(np.int64)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()
for features, label in DataLoader(Table(CSV), batch_size=8):
    optimizer.zero_grad()
    output = model(features)  # <-- origin
    loss = criterion(output, label)
    loss.backward()
    optimizer.step()
