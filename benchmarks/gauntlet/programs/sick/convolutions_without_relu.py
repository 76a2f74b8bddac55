"""nn.Sequential of convolutions and average pooling: the activations were forgotten."""
# expects: missing-activation

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.Conv2d(8, 16, 3, padding=1),
    nn.AvgPool2d(2),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Linear(16 * 9, 32),
    nn.Linear(32, 6),
)
shapes = torch.randn(6, 1, 12, 12)
labels = torch.randint(0, 6, (384,))
images = shapes[labels] * torch.sign(torch.randn(384, 1, 1, 1)) + 0.5 * torch.randn(384, 1, 12, 12)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(5):
    for x, y in DataLoader(TensorDataset(images, labels), batch_size=24, shuffle=True):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(net(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
