"""A second attention block is defined and never called in forward."""
# expects: unused-parameter, missing-gradient

import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(50, dim)
        self.attn1 = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.attn2 = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, 5)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.norm(x + self.attn1(x, x, x)[0])
        x = self.norm(x + self.attn1(x, x, x)[0])  # meant attn2
        return self.fc(x.mean(1))


torch.manual_seed(0)
model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(120):
    tokens = torch.randint(0, 50, (24, 10))
    labels = tokens[:, 0] % 5
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
