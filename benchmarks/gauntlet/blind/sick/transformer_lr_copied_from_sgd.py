"""Adam with lr 0.1, copied from an SGD recipe, on a small transformer classifier: the first steps wreck the weights, the loss jumps and stays at chance."""
# expects: lr-too-high, update-ratio-high, loss-plateau
# report: folklore
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class Brackets(Dataset):
    """0/1 sequences, label = does the first token reappear at the end more often than not"""

    def __init__(self, n, length=16, vocab=10, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randint(0, vocab, (n, length), generator=g)
        self.y = (self.x == 3).sum(1).gt((self.x == 7).sum(1)).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Model(nn.Module):
    def __init__(self, vocab=10, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.pos = nn.Embedding(16, d)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.fc = nn.Linear(d, 2)

    def forward(self, x):
        h = self.emb(x) + self.pos(torch.arange(x.size(1)))
        return self.fc(self.encoder(h).mean(1))


torch.manual_seed(0)
config = dict(lr=0.1, epochs=3, batch_size=32)
train = DataLoader(Brackets(3200), batch_size=config["batch_size"], shuffle=True)
test = DataLoader(Brackets(500, seed=1), batch_size=100)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
criterion = nn.CrossEntropyLoss()
for epoch in range(config["epochs"]):
    model.train()
    for i, (x, y) in enumerate(train):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        if i % 25 == 0:
            print(f"epoch {epoch} [{i}/{len(train)}] loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        acc = sum((model(x).argmax(1) == y).sum().item() for x, y in test) / 500
    print(f"epoch {epoch} test acc {acc:.3f}")
