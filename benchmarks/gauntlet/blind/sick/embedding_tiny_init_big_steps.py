"""Word vectors start at 1e-4 scale while Adam runs with lr 0.3: every update is many times larger than the weights, skip-gram ends worse than a unigram model."""
# expects: update-ratio-high, lr-too-high
# report: folklore
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
V, D, GROUPS = 120, 24, 6
group = torch.arange(V) % GROUPS


def pairs(n):
    """centre and context words mostly come from the same group"""
    c = torch.randint(V, (n,))
    same = torch.rand(n) < 0.8
    g = torch.where(same, group[c], torch.randint(GROUPS, (n,)))
    ctx = torch.randint(V // GROUPS, (n,)) * GROUPS + g
    return c, ctx


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Embedding(V, D)
        self.out = nn.Linear(D, V, bias=False)
        nn.init.uniform_(self.inp.weight, -1e-4, 1e-4)
        nn.init.uniform_(self.out.weight, -1e-4, 1e-4)

    def forward(self, c):
        return self.out(self.inp(c))


net = SkipGram()
opt = torch.optim.Adam(net.parameters(), lr=0.3)
run = 0.0
for step in range(1, 401):
    c, ctx = pairs(128)
    loss = F.cross_entropy(net(c), ctx)
    opt.zero_grad()
    loss.backward()
    opt.step()
    run += loss.item()
    if step % 40 == 0:
        print(f"step {step}: loss {run/40:.4f} (uniform {torch.log(torch.tensor(float(V))):.3f})")
        run = 0.0
