"""The encoder's features are computed under torch.no_grad() (left over from a frozen-encoder experiment), so the freshly initialised encoder gets no gradient at all."""
# expects: missing-gradient, unused-parameter
# report: folklore
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
V, LEN = 12, 6


def scene(n):
    """8x8 picture; caption spells row, column of the bright dot and of the dark dot"""
    img = 0.1 * torch.randn(n, 1, 8, 8)
    p = torch.randint(0, 8, (n, 4))
    r = torch.arange(n)
    img[r, 0, p[:, 0], p[:, 1]] += 2
    img[r, 0, p[:, 2], p[:, 3]] -= 2
    bos = torch.full((n, 1), 8)
    eos = torch.full((n, 1), 9)
    return img, torch.cat([bos, p, eos], 1)


class Encoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 64, d)

    def forward(self, x):
        return torch.tanh(self.fc(F.relu(self.conv(x)).flatten(1)))


class Captioner(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.encoder = Encoder(d)
        self.emb = nn.Embedding(V, 32)
        self.rnn = nn.GRU(32, d, batch_first=True)
        self.out = nn.Linear(d, V)

    def forward(self, img, tokens):
        with torch.no_grad():
            feat = self.encoder(img)
        h, _ = self.rnn(self.emb(tokens), feat[None])
        return self.out(h)


model = Captioner()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(300):
    img, cap = scene(64)
    logits = model(img, cap[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, V), cap[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        acc = (logits.argmax(-1) == cap[:, 1:]).float().mean()
        print(f"{step} loss {loss.item():.4f} token acc {acc:.3f}")
