"""The model's last layer is Softmax and the loss is nn.CrossEntropyLoss, which applies softmax again: the loss cannot fall below about 1.5 for 10 classes and learning is slow."""
# expects: double-softmax
# report: https://github.com/sugi-chan/custom_bert_pipeline/issues/1
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(0)
CLASSES, VOCAB = 10, 300


class News(Dataset):
    def __init__(self, n):
        topics = torch.rand(CLASSES, VOCAB).pow(8) + 0.01
        self.y = torch.randint(CLASSES, (n,))
        self.x = torch.stack([torch.multinomial(topics[k], 30, replacement=True) for k in self.y])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"ids": self.x[i], "label": self.y[i]}


class BagModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, 48, mode="mean")
        self.hidden = nn.Linear(48, 48)
        self.out = nn.Linear(48, CLASSES)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, ids):
        h = torch.relu(self.hidden(self.emb(ids)))
        return self.softmax(self.out(h))


ds = News(2400)
dl = DataLoader(ds, batch_size=40, shuffle=True)
model = BagModel()
crit = nn.CrossEntropyLoss()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(6):
    tot, ok = 0.0, 0
    for b in dl:
        probs = model(b["ids"])
        loss = crit(probs, b["label"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += loss.item()
        ok += (probs.argmax(1) == b["label"]).sum().item()
    print(f"epoch {epoch} loss {tot/len(dl):.4f} acc {ok/len(ds):.3f}")
