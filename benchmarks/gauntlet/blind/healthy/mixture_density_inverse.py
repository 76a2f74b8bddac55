"""Mixture density network for a one-to-many inverse problem: NLL through logsumexp dips below zero; a plain MSE would never fit this."""
# expects:
# source: https://publications.aston.ac.uk/id/eprint/373/
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def data(n):
    y = torch.rand(n, 1) * 2 - 1
    x = y + 0.3 * torch.sin(2 * math.pi * y) + 0.02 * torch.randn(n, 1)
    return x, y


class MDN(nn.Module):
    def __init__(self, h=48, k=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh())
        self.pi, self.mu, self.log_sigma = nn.Linear(h, k), nn.Linear(h, k), nn.Linear(h, k)
        nn.init.uniform_(self.mu.bias, -1, 1)

    def forward(self, x):
        h = self.body(x)
        return F.log_softmax(self.pi(h), 1), self.mu(h), self.log_sigma(h).clamp(-5, 3)


def nll(out, y):
    lp, mu, ls = out
    comp = -0.5 * ((y - mu) / ls.exp()) ** 2 - ls - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(lp + comp, 1).mean()


X, Y = data(4000)
Xt, Yt = data(1000)
net = MDN()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
sch = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)
for ep in range(14):
    for b in torch.randperm(4000).split(128):
        loss = nll(net(X[b]), Y[b])
        opt.zero_grad(); loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
    sch.step()
    if ep % 3 == 1:
        with torch.no_grad():
            print(f"epoch {ep} train {loss.item():+.3f} test nll {nll(net(Xt), Yt).item():+.3f}")
