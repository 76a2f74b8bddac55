"""Recommender with sparse=True embeddings under SparseAdam plus a dense Adam for the rest; most embedding rows get no gradient in any one step, and rare items hardly ever."""
# expects:
# source: https://docs.pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html
import torch
import torch.nn as nn

torch.manual_seed(0)
U, I, K = 800, 500, 6
tu, ti = torch.randn(U, K) / K ** 0.5, torch.randn(I, K)
tb = 0.5 * torch.randn(I)
pop = torch.arange(1, I + 1).float() ** -0.7
n = 60000
users = torch.randint(0, U, (n,))
items = torch.multinomial(pop, n, replacement=True)
ratings = 3.4 + tb[items] + (tu[users] * ti[items]).sum(1) + 0.3 * torch.randn(n)
tr, te = slice(0, 54000), slice(54000, n)


class MF(nn.Module):
    def __init__(self, k=8):
        super().__init__()
        self.u = nn.Embedding(U, k, sparse=True)
        self.i = nn.Embedding(I, k, sparse=True)
        self.bi = nn.Embedding(I, 1, sparse=True)
        self.mean = nn.Parameter(torch.tensor(3.0))
        self.scale = nn.Linear(k, 1, bias=False)
        for e in (self.u, self.i):
            nn.init.normal_(e.weight, std=0.1)
        nn.init.zeros_(self.bi.weight)
        nn.init.ones_(self.scale.weight)

    def forward(self, u, i):
        return self.mean + self.bi(i).squeeze(1) + self.scale(self.u(u) * self.i(i)).squeeze(1)


m = MF()
sparse_opt = torch.optim.SparseAdam([m.u.weight, m.i.weight, m.bi.weight], lr=2e-2)
dense_opt = torch.optim.Adam([m.mean, m.scale.weight], lr=1e-2)
for epoch in range(5):
    perm = torch.randperm(54000)
    for b in perm.split(512):
        pred = m(users[b], items[b])
        loss = nn.functional.mse_loss(pred, ratings[b])
        sparse_opt.zero_grad(); dense_opt.zero_grad()
        loss.backward()
        sparse_opt.step(); dense_opt.step()
    with torch.no_grad():
        rmse = (m(users[te], items[te]) - ratings[te]).pow(2).mean().sqrt()
    print(f"epoch {epoch} train {loss.item():.3f} test rmse {rmse:.3f} (std {ratings.std():.3f})")
