"""A translation decoder is fed the target itself instead of the target shifted by one."""
# expects: target-leak

import torch
import torch.nn as nn


class Seq2Seq(nn.Module):
    def __init__(self, vocab=24, dim=32):
        super().__init__()
        self.src, self.tgt = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, src, tgt):
        _, h = self.encoder(self.src(src))
        return self.out(self.decoder(self.tgt(tgt), h)[0])


torch.manual_seed(0)
model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    src = torch.randint(1, 24, (24, 7))
    tgt = (src.flip(1) * 5) % 24
    logits = model(src, tgt)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
