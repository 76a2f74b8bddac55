"""Domain-adversarial training with a gradient reversal layer: the domain loss rises to ln 2 and stays there, which is the goal."""
# expects:
# source: https://arxiv.org/abs/1505.07818
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lam):
        ctx.lam = lam
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.lam * g, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.cls = nn.Linear(24, 3)
        self.dom = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, lam):
        f = self.feature(x)
        return self.cls(f), self.dom(GradReverse.apply(f, lam)).squeeze(1)


torch.manual_seed(4)
cent = torch.randn(3, 12) * 1.2


def sample(n, target):
    y = torch.randint(0, 3, (n,))
    x = cent[y] + 0.7 * torch.randn(n, 12)
    if target:
        x = x.clone()
        x[:, :3] += 1.0
        x[:, 3:5] *= 1.3
    return x, y


net = DANN()
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
steps = 500
for i in range(steps):
    p = i / steps
    lam = 2 / (1 + math.exp(-10 * p)) - 1
    for g in opt.param_groups:
        g["lr"] = 0.02 / (1 + 10 * p) ** 0.75
    xs, ys = sample(64, False)
    xt, _ = sample(64, True)
    c, d = net(torch.cat([xs, xt]), lam)
    dom = torch.cat([torch.zeros(64), torch.ones(64)])
    l_cls = F.cross_entropy(c[:64], ys)
    l_dom = F.binary_cross_entropy_with_logits(d, dom)
    opt.zero_grad()
    (l_cls + l_dom).backward()
    opt.step()
    if i % 100 == 99:
        with torch.no_grad():
            x, y = sample(1000, True)
            print(f"{i + 1} cls {l_cls.item():.4f} dom {l_dom.item():.4f} lam {lam:.2f} target acc {(net(x, 0)[0].argmax(1) == y).float().mean():.3f}")
