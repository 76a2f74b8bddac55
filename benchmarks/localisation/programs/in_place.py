"""Scores are normalised in place by their sum, which is 0 for one row."""
# op: aten.div_|aten.div
# phase: forward
# module: Ranker|-
# conditions: in-place model

import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(5, 1)

    def forward(self, candidates):
        s = self.score(candidates).squeeze(-1)
        s = s.clamp(min=0)
        s.add_(0.0)
        s.div_(s.sum(dim=1, keepdim=True))  # <-- origin
        s.mul_(0.98).add_(0.005)
        return s


torch.manual_seed(1)
ranker = Ranker()
with torch.no_grad():
    ranker.score.bias.fill_(2.0)
optimizer = torch.optim.SGD(ranker.parameters(), lr=0.01)
for step in range(6):
    candidates = torch.randn(6, 4, 5)
    if step == 4:
        candidates[0] = -30 * ranker.score.weight.detach()
    p = ranker(candidates)
    loss = -p[:, 0].log().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
