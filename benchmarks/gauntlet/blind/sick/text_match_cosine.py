"""Cosine similarity is written by hand without eps; a document whose words are all out of vocabulary has a zero count vector, so 0/0 makes NaN in forward."""
# expects: nonfinite-activation, nonfinite-loss
# report: https://github.com/etzinis/sudo_rm_rf/issues/1
import torch
from torch import nn

torch.manual_seed(11)
D, TOPICS = 120, 8
topic_words = torch.rand(TOPICS, D).pow(6)


def docs(n, topic):
    lam = topic_words[topic] * 3
    return torch.poisson(lam)


class Tower(nn.Module):
    def __init__(self, d=D, out=32):
        super().__init__()
        self.fc = nn.Linear(d, out, bias=False)

    def forward(self, bow):
        z = self.fc(bow.sqrt())
        return z / z.norm(dim=1, keepdim=True)


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = Tower()
        self.doc = Tower()
        self.temp = nn.Parameter(torch.tensor(2.0))

    def forward(self, q, d):
        return (self.query(q) * self.doc(d)).sum(1) * self.temp.exp()


def batch(n=64):
    tq = torch.randint(TOPICS, (n,))
    same = torch.rand(n) < 0.5
    td = torch.where(same, tq, torch.randint(TOPICS, (n,)))
    q, d = docs(n, tq), docs(n, td)
    # queries are short: keep a few words only
    q = q * (torch.rand_like(q) < 0.25)
    return q, d, (tq == td).float()


model = Matcher()
optim = torch.optim.Adam(model.parameters(), lr=3e-3)
bce = nn.BCEWithLogitsLoss()
avg = None
for step in range(500):
    q, d, y = batch()
    if step > 60 and step % 20 == 0:
        q[torch.randint(len(q), (1,))] = 0.0  # query with unknown words only
    s = model(q, d)
    loss = bce(s, y)
    optim.zero_grad()
    loss.backward()
    optim.step()
    avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
    if step % 50 == 0:
        print(f"[{step:4d}] loss={avg:.4f} acc={((s > 0).float() == y).float().mean():.3f}")
