"""BERT-like masking: inputs and targets overlap, but masked positions only are counted."""

import torch
import torch.nn as nn

MASK, VOCAB = 0, 25
torch.manual_seed(0)


class Bert(nn.Module):
    def __init__(self, dim=32, length=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(length, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.1, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, idx):
        return self.head(self.encoder(self.tok(idx) + self.pos(torch.arange(idx.shape[1]))))


model = Bert()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(150):
    start = torch.randint(1, VOCAB, (24, 1))
    tokens = 1 + (start + 2 * torch.arange(12)) % (VOCAB - 1)
    masked = torch.rand(tokens.shape) < 0.2
    masked[:, 3] = True
    labels = torch.where(masked, tokens, -100)
    logits = model(tokens.masked_fill(masked, MASK))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
