"""Images and captions come from two shuffled loaders that are zipped: pairs are random."""
# expects: shuffled-labels, loss-plateau

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
labels = torch.randint(0, 5, (1500,))
images = torch.randn(5, 1, 8, 8)[labels] + 0.4 * torch.randn(1500, 1, 8, 8)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
for epoch in range(5):
    for x, y in zip(DataLoader(images, 30, shuffle=True), DataLoader(labels, 30, shuffle=True)):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
