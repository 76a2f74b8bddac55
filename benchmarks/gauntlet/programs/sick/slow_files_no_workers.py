"""Samples come one by one from slow files, in the process that trains."""
# expects: data-starvation

import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Slides(Dataset):
    def __init__(self):
        self.images = torch.randn(320, 3, 16, 16)
        self.labels = (self.images[:, 0].mean((1, 2)) > 0).long()

    def __len__(self):
        return len(self.images)

    def read(self, index):
        time.sleep(0.004)  # the network drive
        return self.images[index]

    def __getitem__(self, index):
        return self.read(index), self.labels[index]


net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for images, labels in DataLoader(Slides(), batch_size=10, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
