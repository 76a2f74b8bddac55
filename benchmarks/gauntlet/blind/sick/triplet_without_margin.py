"""The metric loss is d(a,p) - d(a,n) with no margin or hinge, so it has no lower bound: embeddings grow without end and the loss runs to minus infinity."""
# expects: loss-explosion
# report: folklore
import torch
from torch import nn

torch.manual_seed(1)
K, D = 20, 16
proto = torch.randn(K, D)
mix = torch.randn(D, 40) / D ** 0.5


def draw(c):
    return torch.tanh((proto[c] + 0.7 * torch.randn(len(c), D)) @ mix)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 128), nn.LeakyReLU(0.1), nn.Linear(128, 128), nn.LeakyReLU(0.1), nn.Linear(128, 32))

    def forward(self, x):
        return self.net(x)


def triplet_loss(a, p, n):
    pos = (a - p).pow(2).sum(1)
    neg = (a - n).pow(2).sum(1)
    return (pos - neg).mean()


model = Embedder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 501):
    c = torch.randint(K, (64,))
    other = (c + torch.randint(1, K, (64,))) % K
    a, p, n = model(draw(c)), model(draw(c)), model(draw(other))
    loss = triplet_loss(a, p, n)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        ok = ((a - p).pow(2).sum(1) < (a - n).pow(2).sum(1)).float().mean()
        print(f"step {step} loss {loss.item():.4g} triplet acc {ok:.3f} |z| {a.norm(dim=1).mean():.3g}")
