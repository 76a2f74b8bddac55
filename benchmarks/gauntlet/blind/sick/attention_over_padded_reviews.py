"""Hand-written attention masks padding with -inf, but some reviews are empty after filtering, so their row is all -inf and softmax gives NaN."""
# expects: nonfinite-activation, nonfinite-loss
# report: https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/5
import math
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(1)
torch.manual_seed(1)
VOCAB, MAXLEN, PAD = 200, 20, 0
good, bad = list(range(1, 60)), list(range(60, 119))
stop = set(range(119, 200))


def make_review():
    y = random.random() < 0.5
    n = random.randint(1, MAXLEN)
    toks = []
    for _ in range(n):
        r = random.random()
        if r < 0.3:
            toks.append(random.choice(good if y else bad))
        elif r < 0.4:
            toks.append(random.choice(bad if y else good))
        else:
            toks.append(random.randint(119, 199))
    # drop stopwords above 190
    toks = [t for t in toks if t < 190]
    return toks, int(y)


data = [make_review() for _ in range(4000)]


def collate(items):
    x = torch.full((len(items), MAXLEN), PAD)
    for i, (t, _) in enumerate(items):
        x[i, :len(t)] = torch.tensor(t, dtype=torch.long)
    return x, torch.tensor([y for _, y in items])


class SelfAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, mask):
        s = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(x.size(-1))
        s = s.masked_fill(~mask[:, None, :], float("-inf"))
        return torch.softmax(s, dim=-1) @ self.v(x)


class Classifier(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.att = SelfAttention(d)
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, 2)

    def forward(self, ids):
        mask = ids != PAD
        h = self.emb(ids)
        h = self.norm(h + self.att(h, mask))
        m = mask.unsqueeze(-1).float()
        return self.out((h * m).sum(1) / m.sum(1).clamp(min=1))


net = Classifier()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
bs = 32
for epoch in range(3):
    random.shuffle(data)
    correct = seen = 0
    for i in range(0, len(data), bs):
        x, y = collate(data[i:i + bs])
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct += (logits.argmax(1) == y).sum().item()
        seen += len(y)
        if i % (bs * 25) == 0:
            print(f"ep {epoch} it {i//bs} loss {loss.item():.4f} acc {correct/seen:.3f}")
