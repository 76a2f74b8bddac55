"""Tied weights: the decoder uses the transpose of the encoder."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tied(nn.Module):
    def __init__(self, n=24, h=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(h, n) * 0.2)
        self.b, self.c = nn.Parameter(torch.zeros(h)), nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return F.linear(torch.tanh(F.linear(x, self.weight, self.b)), self.weight.t(), self.c)


torch.manual_seed(0)
basis = torch.randn(4, 24)
model = Tied()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(300):
    x = torch.randn(48, 4) @ basis / 4
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, loss.item())
