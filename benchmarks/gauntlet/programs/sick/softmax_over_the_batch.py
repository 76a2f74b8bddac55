"""Attention weights with softmax(dim=0): normalised over the batch instead of over time."""
# expects: batch-mixing

import torch
import torch.nn as nn


class AttentionPool(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.proj = nn.Linear(12, dim)
        self.score = nn.Linear(dim, 1)
        self.fc = nn.Linear(dim, 4)

    def forward(self, x):
        h = torch.tanh(self.proj(x))
        weights = torch.softmax(self.score(h), dim=0)
        return self.fc((weights * h).sum(1))


torch.manual_seed(0)
model = AttentionPool()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
signal = 2 * torch.randn(4, 12)
for step in range(150):
    y = torch.randint(0, 4, (24,))
    x = torch.randn(24, 10, 12)
    x[torch.arange(24), torch.randint(0, 10, (24,))] += signal[y]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
