"""All parameters are drawn from N(0, 1) by a copied init loop: logits start in the hundreds, the first loss is far above ln(classes) and the gates are saturated."""
# expects: bad-initialization, saturated-units
# report: https://karpathy.github.io/2019/04/25/recipe/
import torch
import torch.nn as nn

torch.manual_seed(7)
VOCAB, LEN, CLASSES = 50, 20, 10


def make(n):
    x = torch.randint(0, VOCAB, (n, LEN))
    y = torch.randint(0, CLASSES, (n,))
    # the class's key words are sprinkled over the text
    for i in range(n):
        pos = torch.randperm(LEN)[:6]
        x[i, pos] = y[i] * 5 + torch.randint(0, 5, (6,))
    return x, y


class GRUClassifier(nn.Module):
    def __init__(self, emb=64, hid=128):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, emb)
        self.gru = nn.GRU(emb, hid, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(hid, CLASSES)
        for p in self.parameters():
            nn.init.normal_(p, mean=0, std=1)

    def forward(self, x):
        _, h = self.gru(self.emb(x))
        return self.fc(self.drop(h[-1]))


xtr, ytr = make(2000)
xva, yva = make(300)
model = GRUClassifier()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(4):
    model.train()
    perm = torch.randperm(2000)
    for s in range(0, 2000, 40):
        b = perm[s:s + 40]
        loss = criterion(model(xtr[b]), ytr[b])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if s % 400 == 0:
            print(f"epoch {epoch} step {s//40} loss {loss.item():.3f}")
    model.eval()
    with torch.no_grad():
        print("val acc", (model(xva).argmax(1) == yva).float().mean().item())
