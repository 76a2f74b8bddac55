"""nn.MultiheadAttention with a key_padding_mask that hides all keys of one sample."""
# op: aten.softmax|aten._softmax|aten.scaled_dot_product_attention
# phase: forward
# module: blocks.1.attn
# conditions: model mask library

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ln = nn.LayerNorm(dim)

    def forward(self, x, pad):
        a, _ = self.attn(x, x, x, key_padding_mask=pad)  # <-- origin
        return self.ln(x + a)


class Tagger(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.embed = nn.Embedding(20, dim)
        self.blocks = nn.ModuleList([Block(dim), Block(dim), Block(dim)])
        self.tags = nn.Linear(dim, 4)

    def forward(self, tokens):
        x = self.embed(tokens)
        pad = tokens == 0
        for i, block in enumerate(self.blocks):
            x = block(x, pad if i == 1 else None)  # only the middle one looks at the mask
        return self.tags(x)


torch.manual_seed(0)
tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), lr=1e-3)
for step in range(6):
    tokens = torch.randint(1, 20, (5, 6))
    tokens[:, 4:] = 0
    if step == 3:
        tokens[1] = 0
    out = tagger(tokens)
    loss = nn.functional.cross_entropy(out.reshape(-1, 4), torch.randint(0, 4, (30,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
