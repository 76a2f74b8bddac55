"""Batch norm and dropout in training mode; behind them an inverse-variance weighting meets a variance of 0."""
# op: aten.reciprocal|aten.div
# phase: forward
# module: fusion
# conditions: batch-norm dropout buffers model

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Fusion(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mean = nn.Linear(dim, 2)
        self.var = nn.Linear(dim, 2)

    def forward(self, h):
        variance = F.relu(self.var(h))
        weight = 1 / variance  # <-- origin
        return (self.mean(h) * weight).sum(-1) / (weight.sum(-1) + 1e-3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3)
        self.bn = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.3)
        self.fusion = Fusion(24)

    def forward(self, x):
        h = self.drop(torch.relu(self.bn(self.conv(x))))
        return self.fusion(h.flatten(1))


def main():
    torch.manual_seed(5)
    x = torch.randn(48, 1, 8)
    loader = DataLoader(TensorDataset(x, x.mean((1, 2))), batch_size=8, shuffle=True)
    net = Net()
    with torch.no_grad():
        net.fusion.var.bias.fill_(0.9)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(3):
        net.train()
        for inputs, target in loader:
            loss = F.mse_loss(net(inputs), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()


main()
