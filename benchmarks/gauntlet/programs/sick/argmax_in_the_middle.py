"""Discrete codes by argmax: everything in front of it gets no gradient."""
# expects: missing-gradient, unused-parameter, frozen-parameter, detached-loss

import torch
import torch.nn as nn


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 12))
        self.codes = nn.Embedding(12, 24)
        self.decoder = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        index = self.encoder(x).argmax(-1)
        return self.decoder(self.codes(index))


torch.manual_seed(0)
model = Coder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
centres = 2 * torch.randn(10, 16)
for step in range(200):
    x = centres[torch.randint(0, 10, (48,))] + 0.2 * torch.randn(48, 16)
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
