"""A checkpointed block (reentrant): a norm by hand has no derivative at the zero vector."""
# op: aten.sqrt
# phase: backward
# module: stages.2
# conditions: checkpoint model

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stage(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        h = self.fc(x)
        length = torch.sqrt((h * h).sum(-1, keepdim=True))  # <-- origin
        return h / (length + 1e-6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(5, 8)
        self.stages = nn.ModuleList([nn.Linear(8, 8), nn.LayerNorm(8), Stage(8)])
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=True)
        return self.head(x)


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    if step == 4:
        with torch.no_grad():
            net.stages[1].weight.zero_()
            net.stages[1].bias.zero_()  # "zero-init the last norm"
    x = torch.randn(6, 5)
    loss = nn.functional.mse_loss(net(x), x[:, :1])
    opt.zero_grad()
    loss.backward()
    opt.step()
