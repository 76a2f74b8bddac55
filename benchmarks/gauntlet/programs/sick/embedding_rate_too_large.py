"""A param group for the head with lr=5: that layer is thrown about at every step."""
# expects: update-ratio-high, lr-too-high, loss-oscillation, loss-explosion

import torch
import torch.nn as nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.lstm = nn.LSTM(32, 32, batch_first=True)
        self.head = nn.Linear(32, 6)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


model = Tagger()
optimizer = torch.optim.Adam(
    [
        {"params": model.embed.parameters()},
        {"params": model.lstm.parameters()},
        {"params": model.head.parameters(), "lr": 5.0},
    ],
    lr=1e-3,
)
tags = torch.randint(0, 6, (100,))
for step in range(150):
    tokens = torch.randint(0, 100, (16, 12))
    target = torch.where(torch.rand(16, 12) < 0.15, torch.randint(0, 6, (16, 12)), tags[tokens])  # 15 % are wrong
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
