"""Freezing with `layer.requires_grad = False` on the module: an attribute, and no effect."""
# expects: ineffective-freeze
# report: https://discuss.pytorch.org, "freezing a layer: module.requires_grad = False does nothing"

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


torch.manual_seed(0)
model = Net()
model.conv1.requires_grad = False
model.conv2.requires_grad = False
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
y = torch.randint(0, 4, (320,))
x = torch.randn(4, 1, 10, 10)[y] + 0.5 * torch.randn(320, 1, 10, 10)
for epoch in range(4):
    for i in torch.randperm(320).split(16):
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
