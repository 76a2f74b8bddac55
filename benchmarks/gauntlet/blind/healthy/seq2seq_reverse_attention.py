"""GRU seq2seq with dot attention that reverses digit strings, with teacher forcing decided by a coin per batch, so the loss alternates between two levels."""
# expects:
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)
random.seed(5)
SOS, V, L, B = 10, 11, 6, 64


class Encoder(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.emb = nn.Embedding(V, h)
        self.gru = nn.GRU(h, h, batch_first=True)

    def forward(self, x):
        return self.gru(self.emb(x))


class AttnDecoder(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.emb = nn.Embedding(V, h)
        self.gru = nn.GRUCell(h, h)
        self.comb = nn.Linear(2 * h, h)
        self.out = nn.Linear(h, 10)

    def forward(self, tok, hid, enc):
        hid = self.gru(self.emb(tok), hid)
        att = torch.softmax(torch.bmm(enc, hid.unsqueeze(2)).squeeze(2), 1)
        ctx = torch.bmm(att.unsqueeze(1), enc).squeeze(1)
        return self.out(torch.tanh(self.comb(torch.cat([hid, ctx], 1)))), hid


enc, dec = Encoder(64), AttnDecoder(64)
enc_opt = torch.optim.Adam(enc.parameters(), lr=3e-3)
dec_opt = torch.optim.Adam(dec.parameters(), lr=3e-3)


def forward(x, y, teacher):
    out, h = enc(x)
    h = h[0]
    tok = torch.full((len(x),), SOS)
    logits = []
    for t in range(L):
        lg, h = dec(tok, h, out)
        logits.append(lg)
        tok = y[:, t] if teacher else lg.argmax(1)
    return torch.stack(logits, 1)


for it in range(1, 351):
    x = torch.randint(0, 10, (B, L))
    y = x.flip(1)
    enc_opt.zero_grad(); dec_opt.zero_grad()
    logits = forward(x, y, random.random() < 0.6)
    loss = F.cross_entropy(logits.reshape(-1, 10), y.reshape(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(list(enc.parameters()) + list(dec.parameters()), 1.0)
    enc_opt.step(); dec_opt.step()
    if it % 70 == 0:
        with torch.no_grad():
            xt = torch.randint(0, 10, (500, L))
            acc = (forward(xt, xt.flip(1), False).argmax(2) == xt.flip(1)).all(1).float().mean()
        print(f"iter {it} loss {loss.item():.4f} exact match {acc:.3f}")
