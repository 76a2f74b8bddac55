"""TransE with margin loss: entity vectors are renormalised in place before each step outside the optimizer, and most triples reach exactly zero loss."""
# expects:
# source: https://papers.nips.cc/paper/2013/hash/1cecc7a77928ca8133fa24680a88d2f9-Abstract.html
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
SIDE, N = 10, 100
ent = torch.arange(N)
r, c = ent // SIDE, ent % SIDE
moves = [(0, 1), (1, 0), (1, 1), (0, 2), (2, 1)]
triples = []
for k, (dr, dc) in enumerate(moves):
    ok = (r + dr < SIDE) & (c + dc < SIDE)
    triples.append(torch.stack([ent[ok], torch.full((int(ok.sum()),), k), (r + dr)[ok] * SIDE + (c + dc)[ok]], 1))
triples = torch.cat(triples)
triples = triples[torch.randperm(len(triples))]
train, test = triples[:-50], triples[-50:]


class TransE(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.e, self.r = nn.Embedding(N, dim), nn.Embedding(len(moves), dim)
        b = 6 / dim ** 0.5
        nn.init.uniform_(self.e.weight, -b, b)
        nn.init.uniform_(self.r.weight, -b, b)
        self.r.weight.data = F.normalize(self.r.weight.data, dim=1)

    def normalize(self):
        with torch.no_grad():
            self.e.weight.copy_(F.normalize(self.e.weight, dim=1))

    def dist(self, t):
        return (self.e(t[:, 0]) + self.r(t[:, 1]) - self.e(t[:, 2])).norm(p=2, dim=1)


@torch.no_grad()
def mean_rank(m, t):
    q = F.normalize(m.e.weight, dim=1)
    d = torch.cdist(q[t[:, 0]] + m.r.weight[t[:, 1]], q)
    return (d < d.gather(1, t[:, 2:])).sum(1).float().add(1).mean().item()


m = TransE()
opt = torch.optim.Adam(m.parameters(), lr=1e-2)
print("initial mean rank", mean_rank(m, test))
for epoch in range(80):
    tot = 0.0
    for b in train[torch.randperm(len(train))].split(64):
        m.normalize()
        neg = b.clone()
        head = torch.rand(len(b)) < 0.5
        rnd = torch.randint(0, N, (len(b),))
        neg[head, 0], neg[~head, 2] = rnd[head], rnd[~head]
        loss = F.relu(0.5 + m.dist(b) - m.dist(neg)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += loss.item() * len(b) / len(train)
    if epoch % 20 == 19:
        print(f"epoch {epoch + 1} margin loss {tot:.4f} test mean rank {mean_rank(m, test):.2f} of {N}")
