"""word2vec skip-gram with negative sampling: context vectors start at zero, each step touches only a few rows, and the loss floor is well above zero."""
# expects:
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
topics = {"pets": "cat dog hamster rabbit parrot".split(), "food": "bread cheese apple soup rice".split(),
          "tech": "laptop phone screen chip robot".split(), "sky": "star moon comet planet sun".split()}
fill = "the a of and is".split()
vocab = sum(topics.values(), []) + fill
w2i = {w: i for i, w in enumerate(vocab)}
sents = []
for _ in range(1500):
    tp = random.choice(list(topics))
    sents.append([w2i[random.choice(fill) if random.random() < 0.3 else random.choice(topics[tp])] for _ in range(8)])
pairs = torch.tensor([(s[i], s[j]) for s in sents for i in range(8) for j in range(max(0, i - 2), min(8, i + 3)) if i != j])
freq = torch.bincount(pairs[:, 0], minlength=len(vocab)).float() ** 0.75


class SGNS(nn.Module):
    def __init__(self, V, d=16):
        super().__init__()
        self.in_embed, self.out_embed = nn.Embedding(V, d), nn.Embedding(V, d)
        nn.init.uniform_(self.in_embed.weight, -0.5 / d, 0.5 / d)
        nn.init.zeros_(self.out_embed.weight)

    def forward(self, c, o, neg):
        v = self.in_embed(c)
        pos = F.logsigmoid((v * self.out_embed(o)).sum(1))
        ng = F.logsigmoid(-torch.bmm(self.out_embed(neg), v.unsqueeze(2)).squeeze(2)).sum(1)
        return -(pos + ng).mean()


m = SGNS(len(vocab))
opt = torch.optim.Adam(m.parameters(), lr=1e-2)
for epoch in range(3):
    run = 0
    batches = pairs[torch.randperm(len(pairs))].split(256)
    for b in batches:
        neg = torch.multinomial(freq, len(b) * 5, replacement=True).view(len(b), 5)
        loss = m(b[:, 0], b[:, 1], neg)
        opt.zero_grad()
        loss.backward()
        opt.step()
        run += loss.item()
    E = F.normalize(m.in_embed.weight.detach()[:20], dim=1)
    S = E @ E.T - 2 * torch.eye(20)
    nn_ok = (S.argmax(1) // 5 == torch.arange(20) // 5).float().mean()
    print(f"epoch {epoch} loss {run / len(batches):.4f} nearest neighbour in the same topic {nn_ok:.2f}")
