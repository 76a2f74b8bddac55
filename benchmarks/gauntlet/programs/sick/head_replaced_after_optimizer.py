"""Fine-tuning: the optimizer was created before model.fc was replaced by a new head."""
# expects: unoptimized-parameter
# report: https://discuss.pytorch.org, "replaced fc layer is not trained"

import torch
import torch.nn as nn


class SmallResNet(nn.Module):
    def __init__(self, classes=100):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 12, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(12)
        self.fc = nn.Linear(12, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(x + self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


torch.manual_seed(0)
model = SmallResNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
model.fc = nn.Linear(12, 4)
y = torch.randint(0, 4, (320,))
x = torch.randn(4, 3, 8, 8)[y] + 0.5 * torch.randn(320, 3, 8, 8)
for epoch in range(4):
    for i in torch.randperm(320).split(16):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
