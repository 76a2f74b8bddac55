"""Hinton's forward-forward: every layer has its own optimizer and local goodness loss, inputs detached between layers, so no gradient ever crosses a layer."""
# expects:
# source: https://arxiv.org/abs/2212.13345
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
K, D = 4, 16
cent = torch.randn(K, D)


def data(n):
    y = torch.randint(0, K, (n,))
    return cent[y] + 0.5 * torch.randn(n, D), y


def overlay(x, y):
    return torch.cat([2 * F.one_hot(y, K).float(), x], 1)


class FFLayer(nn.Linear):
    def __init__(self, i, o, lr=0.01, threshold=2.0):
        super().__init__(i, o)
        self.threshold = threshold
        self.opt = torch.optim.Adam(self.parameters(), lr=lr)

    def forward(self, x):
        x = x / (x.norm(2, 1, keepdim=True) + 1e-4) * x.size(1) ** 0.5
        return torch.relu(super().forward(x))

    def learn(self, pos, neg):
        gp, gn = self.forward(pos).pow(2).mean(1), self.forward(neg).pow(2).mean(1)
        loss = F.softplus(torch.cat([self.threshold - gp, gn - self.threshold])).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return self.forward(pos).detach(), self.forward(neg).detach(), loss.item()


layers = nn.ModuleList([FFLayer(D + K, 64), FFLayer(64, 64)])


@torch.no_grad()
def predict(x):
    scores = []
    for k in range(K):
        h, g = overlay(x, torch.full((len(x),), k)), 0
        for l in layers:
            h = l(h)
            g = g + h.pow(2).mean(1)
        scores.append(g)
    return torch.stack(scores, 1).argmax(1)


for step in range(200):
    x, y = data(128)
    wrong = (y + torch.randint(1, K, y.shape)) % K
    pos, neg = overlay(x, y), overlay(x, wrong)
    ls = []
    for l in layers:
        pos, neg, v = l.learn(pos, neg)
        ls.append(v)
    if step % 40 == 39:
        xt, yt = data(1000)
        print(f"step {step + 1} local losses {[round(v, 3) for v in ls]} test acc {(predict(xt) == yt).float().mean():.3f}")
