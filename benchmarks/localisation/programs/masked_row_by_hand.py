"""masked_fill(-inf) and softmax: a query that may look at nothing gets NaN."""
# op: aten.softmax|aten._softmax
# phase: forward
# module: cross
# conditions: model mask kwargs

import torch
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)

    def forward(self, query, memory, *, mask=None):
        k, v = self.kv(memory).chunk(2, -1)
        scores = torch.einsum("bqd,bkd->bqk", self.q(query), k) / k.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, :], float("-inf"))
        return scores.softmax(dim=-1) @ v  # <-- origin


class Reader(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.cross = CrossAttention(dim)
        self.norm = nn.LayerNorm(dim)
        self.classify = nn.Linear(dim, 3)

    def forward(self, query, memory, mask):
        h = self.norm(query + self.cross(query, memory, mask=mask))
        return self.classify(h.mean(1))


torch.manual_seed(0)
model = Reader()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(7):
    lengths = torch.randint(1, 6, (6,))
    if step == 4:
        lengths[3] = 0  # no document was retrieved
    mask = torch.arange(6)[None] < lengths[:, None]
    logits = model(torch.randn(6, 2, 8), torch.randn(6, 6, 8), mask=mask)
    loss = nn.functional.cross_entropy(logits, torch.randint(0, 3, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
