"""Continual learning with elastic weight consolidation: a big loss jump at the switch from task A to B is expected; both tasks are good at the end."""
# expects:
# source: https://arxiv.org/abs/1612.00796
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
D, K = 20, 4
cA, cB = torch.randn(K, D) * 1.3, torch.randn(K, D) * 1.3


def get(c, n):
    y = torch.randint(0, K, (n,))
    return c[y] + torch.randn(n, D), y


class Learner:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(D, 100), nn.ReLU(), nn.Linear(100, K))
        self.fisher, self.star = None, None

    def penalty(self):
        if self.fisher is None:
            return 0.0
        return sum((f * (p - s) ** 2).sum() for f, p, s in zip(self.fisher, self.net.parameters(), self.star))

    def fit(self, c, steps, lam=0.0, name=""):
        opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        for i in range(steps):
            x, y = get(c, 64)
            loss = F.cross_entropy(self.net(x), y) + lam * self.penalty()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 50 == 0 or i == steps - 1:
                print(f"task {name} step {i} loss {loss.item():.3f} acc A {self.acc(cA):.3f} acc B {self.acc(cB):.3f}")

    def consolidate(self, c, n=400):
        fisher = [torch.zeros_like(p) for p in self.net.parameters()]
        xs, _ = get(c, n)
        for x in xs:
            logp = F.log_softmax(self.net(x[None]), 1)
            y = torch.multinomial(logp.exp(), 1).item()
            g = torch.autograd.grad(logp[0, y], list(self.net.parameters()))
            for f, gi in zip(fisher, g):
                f += gi ** 2 / n
        self.fisher, self.star = fisher, [p.detach().clone() for p in self.net.parameters()]

    @torch.no_grad()
    def acc(self, c):
        x, y = get(c, 1000)
        return (self.net(x).argmax(1) == y).float().mean().item()


l = Learner()
l.fit(cA, 200, name="A")
l.consolidate(cA)
l.fit(cB, 250, lam=500.0, name="B")
