"""A max-product tagger: a constraint forbids every tag of one word, and logsumexp has nothing to sum."""
# op: aten.logsumexp
# phase: forward
# module: crf
# conditions: model mask time

import torch
from torch import nn


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def forward(self, emissions, allowed):
        emissions = emissions.masked_fill(~allowed, float("-inf"))
        alpha = emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            best = (alpha.unsqueeze(2) + self.transitions).amax(1)
            alpha = best + emissions[:, t]
        return torch.logsumexp(alpha, dim=-1)  # <-- origin


class Tagger(nn.Module):
    def __init__(self, tags=4):
        super().__init__()
        self.embed = nn.Embedding(15, 8)
        self.emit = nn.Linear(8, tags)
        self.crf = CRF(tags)

    def forward(self, words, allowed):
        return self.crf(self.emit(self.embed(words)), allowed)


torch.manual_seed(0)
model = Tagger()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    words = torch.randint(0, 15, (3, 5))
    allowed = torch.rand(3, 5, 4) > 0.3
    allowed[..., 0] = True
    if step == 2:
        allowed[1, 4] = False
    loss = model(words, allowed).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
