"""Seq2seq: only the decoder's parameters were given to the optimizer."""
# expects: unoptimized-parameter

import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def forward(self, src):
        return self.gru(self.embed(src))[1]


class Decoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, tgt, hidden):
        return self.out(self.gru(self.embed(tgt), hidden)[0])


torch.manual_seed(0)
encoder, decoder = Encoder(20, 32), Decoder(20, 32)
optimizer = torch.optim.Adam(decoder.parameters(), lr=3e-3)
for step in range(120):
    src = torch.randint(1, 20, (32, 6))
    tgt = src.flip(1)
    shifted = torch.cat([torch.zeros(32, 1, dtype=torch.long), tgt[:, :-1]], 1)
    logits = decoder(shifted, encoder(src))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
