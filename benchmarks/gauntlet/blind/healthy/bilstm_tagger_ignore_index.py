"""BiLSTM sequence tagger with ignore_index=-100 for padding: most target entries are -100, out of the label range on purpose."""
# expects:
import argparse
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

p = argparse.ArgumentParser()
p.add_argument("--hidden", type=int, default=32)
p.add_argument("--lr", type=float, default=5e-3)
p.add_argument("--epochs", type=int, default=3)
args = p.parse_args()
torch.manual_seed(0)
V, K = 30, 4


def sentence():
    n = int(torch.randint(4, 20, (1,)))
    x = torch.randint(1, V, (n,))
    y = torch.zeros(n, dtype=torch.long)
    for i in range(n):
        if x[i] < 6:
            y[i] = 1                                  # begin
        elif i and y[i - 1] in (1, 2) and x[i] < 18:
            y[i] = 2                                  # inside
        elif i + 1 < n and x[i + 1] >= 25:
            y[i] = 3                                  # looks ahead
    return x, y


def collate(b):
    n = max(len(x) for x, _ in b)
    X = torch.zeros(len(b), n, dtype=torch.long)
    Y = torch.full((len(b), n), -100)
    for i, (x, y) in enumerate(b):
        X[i, :len(x)], Y[i, :len(y)] = x, y
    return X, Y


class Tagger(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.emb = nn.Embedding(V, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, h, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * h, K)

    def forward(self, x):
        return self.out(self.lstm(self.emb(x))[0])


train = DataLoader([sentence() for _ in range(2000)], batch_size=32, shuffle=True, collate_fn=collate)
dev = DataLoader([sentence() for _ in range(300)], batch_size=100, collate_fn=collate)
model = Tagger(args.hidden)
opt = torch.optim.Adam(model.parameters(), lr=args.lr)
crit = nn.CrossEntropyLoss(ignore_index=-100)
for ep in range(args.epochs):
    model.train()
    for X, Y in train:
        loss = crit(model(X).transpose(1, 2), Y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    ok = n = 0
    with torch.no_grad():
        for X, Y in dev:
            m = Y != -100
            ok += (model(X).argmax(2) == Y)[m].sum().item()
            n += m.sum().item()
    print(f"epoch {ep} loss {loss.item():.4f} dev token acc {ok / n:.4f}")
