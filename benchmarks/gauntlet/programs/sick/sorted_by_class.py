"""ImageFolder order and shuffle=False: all of class 0, then all of class 1, ..."""
# expects: unshuffled-data

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Folder(Dataset):
    """Files in the order of their folders."""

    def __init__(self, per_class=100, classes=5):
        self.targets = torch.arange(classes).repeat_interleave(per_class)
        self.samples = torch.randn(classes, 1, 10, 10)[self.targets] + torch.randn(len(self.targets), 1, 10, 10)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        return self.samples[i], self.targets[i]


torch.manual_seed(0)
loader = DataLoader(Folder(), batch_size=20)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 5))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(6):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
