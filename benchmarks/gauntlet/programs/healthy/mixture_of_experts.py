"""Top-2 routing with a load-balancing loss; some experts get no token in a batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MoE(nn.Module):
    def __init__(self, dim=24, experts=8, k=2):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, dim)) for _ in range(experts)
        )
        self.k = k

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weight, index = probs.topk(self.k, dim=-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            row, slot = (index == e).nonzero(as_tuple=True)
            if len(row):
                out = out.index_add(0, row, weight[row, slot, None] * expert(x[row]))
        load = F.one_hot(index[:, 0], len(self.experts)).float().mean(0)
        return x + out, (load * probs.mean(0)).sum() * len(self.experts)


torch.manual_seed(0)
moe, head = MoE(), nn.Linear(24, 4)
optimizer = torch.optim.AdamW([*moe.parameters(), *head.parameters()], lr=2e-3)
centres = 2 * torch.randn(12, 24)
for step in range(150):
    c = torch.randint(0, 12, (48,))
    h, balance = moe(centres[c] + torch.randn(48, 24))
    loss = F.cross_entropy(head(h), c % 4) + 0.01 * balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
