"""uint8 images cast to float and not scaled, with SGD: the loss starts in the hundreds and units die."""
# expects: unnormalized-input

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, n=480):
        g = torch.Generator().manual_seed(5)
        self.labels = torch.randint(0, 6, (n,), generator=g)
        base = torch.randint(30, 220, (6, 3, 12, 12), generator=g).float()
        noise = 30 * torch.randn(n, 3, 12, 12, generator=g)
        self.images = (base[self.labels] + noise).clamp(0, 255).to(torch.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i].float(), self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc = nn.Linear(16 * 4 * 4, 6)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for epoch in range(4):
    for images, labels in DataLoader(Photos(), batch_size=24, shuffle=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
