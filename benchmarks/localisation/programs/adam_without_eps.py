"""Adam with eps=0: rows of the embedding that never had a gradient are divided 0 by 0."""
# op: -
# phase: optimizer
# module: embed|-
# line: any
# conditions: optimizer

import torch
from torch import nn


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 4)
        self.fc = nn.Linear(4, 2)

    def forward(self, tokens):
        return self.fc(self.embed(tokens).mean(1))


torch.manual_seed(0)
model = Bag()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=0.0)
for step in range(5):
    tokens = torch.randint(0, 9, (16, 6))
    if step > 2:
        tokens[0] = 10  # seen for the first time
    loss = nn.functional.cross_entropy(model(tokens), torch.randint(0, 2, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
