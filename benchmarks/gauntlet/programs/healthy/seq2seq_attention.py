"""Seq2seq with additive attention and teacher forcing (the decoder gets the shifted target)."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

SOS = 0


class Encoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.gru(self.dropout(self.embedding(x)))


class AttnDecoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.Wa, self.Ua, self.Va = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 1)
        self.gru = nn.GRU(2 * dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, keys, hidden, target, forcing):
        token, outputs = torch.full((len(keys), 1), SOS), []
        for t in range(target.shape[1]):
            query = hidden.permute(1, 0, 2)
            weights = F.softmax(self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2), -1)
            context = torch.bmm(weights.unsqueeze(1), keys)
            out, hidden = self.gru(torch.cat([self.embedding(token), context], 2), hidden)
            outputs.append(self.out(out))
            token = target[:, t : t + 1] if forcing else outputs[-1].argmax(-1).detach()
        return F.log_softmax(torch.cat(outputs, 1), -1)


random.seed(0)
torch.manual_seed(0)
encoder, decoder = Encoder(14, 32), AttnDecoder(14, 32)
enc_opt = torch.optim.Adam(encoder.parameters(), lr=4e-3)
dec_opt = torch.optim.Adam(decoder.parameters(), lr=4e-3)
criterion = nn.NLLLoss()
for step in range(120):
    src = torch.randint(1, 14, (32, 5))
    tgt = src.flip(1)
    enc_opt.zero_grad()
    dec_opt.zero_grad()
    keys, hidden = encoder(src)
    logp = decoder(keys, hidden, tgt, random.random() < 0.7)
    loss = criterion(logp.reshape(-1, 14), tgt.reshape(-1))
    loss.backward()
    enc_opt.step()
    dec_opt.step()
    if step % 30 == 0:
        print(step, loss.item())
