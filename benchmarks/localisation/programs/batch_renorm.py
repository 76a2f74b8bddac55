"""Batch renormalisation: after a warm-up of 4 batches it divides by running statistics, of which one is 0."""
# op: aten.div
# phase: forward
# module: net.1
# conditions: buffers batch-norm model

import torch
from torch import nn


class BatchRenorm(nn.Module):
    def __init__(self, size, warm_up=4):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_std", torch.zeros(size))
        self.register_buffer("seen", torch.tensor(0))
        self.warm_up = warm_up

    def forward(self, x):
        mean, std = x.mean(0), x.std(0, unbiased=False)
        if self.training:
            with torch.no_grad():
                self.seen += 1
                self.running_mean.lerp_(mean, 0.5)
                self.running_std.lerp_(std, 0.5)
        if self.seen <= self.warm_up:
            return (x - mean) / (std + 1e-5)
        return (x - self.running_mean) / self.running_std  # <-- origin


torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 6), BatchRenorm(6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
        with torch.no_grad():
            self.net[0].weight[3] = 0  # a pruned unit
        self.net[0].weight.register_hook(lambda g: g * (torch.arange(6) != 3)[:, None])

    def forward(self, x):
        return self.net(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(7):
    x = torch.randn(8, 4)
    loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
