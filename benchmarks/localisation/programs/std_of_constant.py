"""Features are standardised inside the model; one of them is constant in a batch."""
# op: aten.div
# phase: forward
# module: features.norm
# conditions: model

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Standardise(nn.Module):
    def forward(self, x):
        centred = x - x.mean(0)
        return centred / x.std(0)  # <-- origin


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Standardise()
        self.lin = nn.Linear(5, 12)

    def forward(self, x):
        return torch.tanh(self.lin(self.norm(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = Features()
        self.head = nn.Linear(12, 1)

    def forward(self, x):
        return self.head(self.features(x))


class Sensors(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(4)
        self.x = torch.randn(60, 5, generator=g)
        self.x[30:40, 2] = 1.0  # a sensor that hung
        self.y = self.x.sum(1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def train():
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for x, y in DataLoader(Sensors(), batch_size=10):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()


train()
