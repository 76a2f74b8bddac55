"""LSTM sentiment classifier on variable-length token sequences, packed; padding_idx row of the embedding never changes, which is intended."""
# expects:
import random
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence
from torch.utils.data import DataLoader

random.seed(0)
torch.manual_seed(0)
POS = "good great fine lovely superb fun bright".split()
NEG = "bad awful poor dull boring weak grim".split()
NEU = ("the a movie film plot actor scene it was and with very quite of in this that story music").split()
NOT = "not"
vocab = {w: i + 1 for i, w in enumerate(POS + NEG + NEU + [NOT])}  # 0 = pad


def sample():
    while True:
        toks, score = [], 0
        for _ in range(random.randint(5, 22)):
            r = random.random()
            if r < 0.12:
                toks.append(random.choice(POS)); score += 1
            elif r < 0.24:
                toks.append(random.choice(NEG)); score -= 1
            elif r < 0.34:
                p = random.random() < 0.5
                toks += [NOT, random.choice(POS if p else NEG)]
                score += -1 if p else 1
            else:
                toks.append(random.choice(NEU))
        if score != 0:
            return torch.tensor([vocab[t] for t in toks]), int(score > 0)


def collate(batch):
    xs, ys = zip(*batch)
    lens = torch.tensor([len(x) for x in xs])
    return pad_sequence(xs, batch_first=True), lens, torch.tensor(ys, dtype=torch.float)


class SentimentLSTM(nn.Module):
    def __init__(self, V, emb=32, hid=48):
        super().__init__()
        self.embedding = nn.Embedding(V, emb, padding_idx=0)
        self.lstm = nn.LSTM(emb, hid, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(2 * hid, 1)

    def forward(self, x, lens):
        packed = pack_padded_sequence(self.embedding(x), lens, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.fc(self.dropout(torch.cat([h[0], h[1]], 1))).squeeze(1)


train = [sample() for _ in range(3000)]
valid = [sample() for _ in range(500)]
train_dl = DataLoader(train, batch_size=50, shuffle=True, collate_fn=collate)
valid_dl = DataLoader(valid, batch_size=100, collate_fn=collate)
model = SentimentLSTM(len(vocab) + 1)
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)


def accuracy(dl):
    model.eval()
    c = n = 0
    with torch.no_grad():
        for x, l, y in dl:
            c += ((model(x, l) > 0).float() == y).sum().item(); n += len(y)
    return c / n


for epoch in range(5):
    model.train()
    running = 0
    for x, l, y in train_dl:
        optimizer.zero_grad()
        loss = criterion(model(x, l), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        running += loss.item()
    print(f"Epoch {epoch + 1}: loss {running / len(train_dl):.4f} | val acc {accuracy(valid_dl):.3f}")
