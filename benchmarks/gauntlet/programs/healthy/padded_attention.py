"""Attention with a -inf padding mask and a causal mask, loss with ignore_index."""

import torch
import torch.nn as nn

PAD = 0
VOCAB = 30


class LM(nn.Module):
    def __init__(self, dim=32, length=12):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(length, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, idx):
        t = idx.shape[1]
        causal = torch.triu(torch.full((t, t), float("-inf")), 1)
        padding = torch.zeros(idx.shape).masked_fill(idx == PAD, float("-inf"))
        padding[:, 0] = 0
        h = self.body(self.tok(idx) + self.pos(torch.arange(t)), mask=causal, src_key_padding_mask=padding)
        return self.head(h)


torch.manual_seed(0)
model = LM()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(150):
    start, stride = torch.randint(1, 10, (24, 1)), torch.randint(1, 3, (24, 1))
    seq = 1 + (start + stride * torch.arange(13)) % (VOCAB - 1)
    seq[torch.arange(13) >= torch.randint(4, 14, (24, 1))] = PAD
    logits = model(seq[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten(), ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
