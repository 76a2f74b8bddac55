"""Sequences get longer as training goes on: the inputs change shape, the loss jumps a little."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 12)
        self.gru = nn.GRU(12, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, tokens):
        return self.out(self.gru(self.embed(tokens))[1][0])


net = Counter()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for stage, length in enumerate([4, 6, 8, 12]):
    for step in range(80):
        tokens = torch.randint(0, 4, (32, length))
        target = (tokens == 2).float().sum(1, keepdim=True) / length
        loss = nn.functional.mse_loss(net(tokens), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(stage, length, loss.item())
