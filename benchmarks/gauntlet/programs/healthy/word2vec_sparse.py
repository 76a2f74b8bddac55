"""Skip-gram with negative sampling, sparse embeddings and SparseAdam; 99 % of the rows stay untouched in a step."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 3000


class SkipGram(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.target = nn.Embedding(VOCAB, dim, sparse=True)
        self.context = nn.Embedding(VOCAB, dim, sparse=True)
        nn.init.uniform_(self.target.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.context.weight)

    def forward(self, word, context, negatives):
        v = self.target(word)
        positive = F.logsigmoid((v * self.context(context)).sum(-1))
        negative = F.logsigmoid(-(self.context(negatives) @ v.unsqueeze(-1)).squeeze(-1)).sum(-1)
        return -(positive + negative).mean()


torch.manual_seed(0)
model = SkipGram()
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=1e-2)
frequency = 1.0 / torch.arange(1, VOCAB + 1)
for step in range(300):
    word = torch.multinomial(frequency, 64, replacement=True)
    context = (word + torch.randint(1, 4, (64,))) % VOCAB
    negatives = torch.multinomial(frequency, 64 * 5, replacement=True).view(64, 5)
    loss = model(word, context, negatives)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, loss.item())
