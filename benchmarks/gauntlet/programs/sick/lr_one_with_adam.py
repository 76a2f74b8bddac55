"""Adam at lr=1.0 (copied from an SGD recipe) on a small CNN."""
# expects: lr-too-high, loss-explosion, dead-units, loss-plateau, constant-output

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(16 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 5)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


torch.manual_seed(0)
pattern = torch.randn(5, 1, 12, 12)
y = torch.randint(0, 5, (500,))
x = pattern[y] + 0.6 * torch.randn(500, 1, 12, 12)
loader = DataLoader(TensorDataset(x, y), batch_size=25, shuffle=True)
net = Net()
optimizer = optim.Adam(net.parameters(), lr=1.0)
for epoch in range(5):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
