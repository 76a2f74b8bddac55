"""RealNVP flow with zero-initialised last layers (identity at start); NLL falls below zero because densities are not probabilities."""
# expects:
# source: https://arxiv.org/abs/1605.08803
import math
import torch
import torch.nn as nn

torch.manual_seed(2)


def spiral(n):
    t = torch.rand(n).sqrt() * 2.5 * math.pi
    return torch.stack([t * t.cos(), t * t.sin()], 1) / 16 + 0.01 * torch.randn(n, 2)


class Coupling(nn.Module):
    def __init__(self, mask, h=64):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(nn.Linear(2, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 4))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        s, t = self.net(x * self.mask).chunk(2, 1)
        s = torch.tanh(s) * 2 * (1 - self.mask)
        t = t * (1 - self.mask)
        return x * s.exp() + t, s.sum(1)


class Flow(nn.Module):
    def __init__(self, k=8):
        super().__init__()
        m = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        self.layers = nn.ModuleList(Coupling(m[i % 2]) for i in range(k))

    def log_prob(self, x):
        ld = 0
        for l in self.layers:
            x, d = l(x)
            ld = ld + d
        return -0.5 * x.pow(2).sum(1) - math.log(2 * math.pi) + ld


flow = Flow()
opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400)
for i in range(400):
    loss = -flow.log_prob(spiral(256)).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    opt.step()
    sch.step()
    if i % 80 == 79:
        with torch.no_grad():
            print(f"iter {i + 1} train nll {loss.item():.3f} test nll {-flow.log_prob(spiral(2000)).mean().item():.3f}")
