"""F.relu in a conv net with a big SGD rate: after a few steps most channels are off for every image."""
# expects: dead-units, lr-too-high, constant-output, loss-plateau, loss-explosion

import torch
import torch.nn as nn
import torch.nn.functional as F


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 16, 3)
        self.fc1 = nn.Linear(16 * 5 * 5, 60)
        self.fc2 = nn.Linear(60, 6)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(x)


torch.manual_seed(0)
shapes = torch.rand(6, 1, 14, 14)
label = torch.randint(0, 6, (480,))
image = shapes[label] * 2 + 0.5 * torch.randn(480, 1, 14, 14)
net = LeNet()
opt = torch.optim.SGD(net.parameters(), lr=0.8, momentum=0.9)
for epoch in range(6):
    for i in torch.randperm(480).split(24):
        opt.zero_grad()
        loss = F.cross_entropy(net(image[i]), label[i])
        loss.backward()
        opt.step()
    print(epoch, loss.item())
