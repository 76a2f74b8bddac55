"""The last batch of the epoch has one sample, whose standard deviation does not exist."""
# op: aten.std|aten.var
# phase: forward
# module: whiten
# conditions: model loader

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Whiten(nn.Module):
    def forward(self, x):
        mean = x.mean(dim=0, keepdim=True)
        std = x.std(dim=0, keepdim=True)  # <-- origin
        return (x - mean) / (std + 1e-5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 10)
        self.whiten = Whiten()
        self.fc2 = nn.Linear(10, 2)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = self.whiten(x)
        return self.fc2(x)


torch.manual_seed(0)
data = TensorDataset(torch.randn(33, 4), torch.randint(0, 2, (33,)))
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
