"""The warm-up multiplier uses integer division (step // warmup), so the learning rate is 0 for the first 500 steps - which is all the run has."""
# expects: lr-jump, lr-too-low, frozen-parameter
# report: folklore
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3, padding=1)
        self.c2 = nn.Conv2d(12, 24, 3, padding=1)
        self.fc = nn.Linear(24 * 16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.fc(x.flatten(1))


def stripes(n):
    """4 classes: horizontal, vertical, two diagonals"""
    k = torch.randint(4, (n,))
    i, j = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    pats = torch.stack([i, j, i + j, i - j]).float()
    ph = torch.rand(n, 1, 1) * 6.28
    img = torch.sin(pats[k] * 1.2 + ph) + 0.4 * torch.randn(n, 16, 16)
    return img[:, None], k


def train(steps=300, warmup=500, lr=2e-3):
    torch.manual_seed(0)
    net = ConvNet()
    opt = torch.optim.AdamW(net.parameters(), lr=lr)
    sched = LambdaLR(opt, lambda s: min(1.0, s // warmup))
    for s in range(steps):
        x, y = stripes(32)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if s % 30 == 0:
            print(f"{s:4d}/{steps} loss {loss.item():.4f}")
    x, y = stripes(500)
    print("test acc", (net(x).argmax(1) == y).float().mean().item())


train()
