"""Encoder and decoder are two models with an optimizer each; the decoder's scale may be 0, and so its log."""
# op: aten.log
# phase: forward
# module: decoder.likelihood|likelihood
# conditions: several-roots several-optimizers

import torch
from torch import nn
import torch.nn.functional as F


class Likelihood(nn.Module):
    def forward(self, mean, scale, x):
        return 0.5 * ((x - mean) / (scale + 1e-4)) ** 2 + torch.log(scale)  # <-- origin


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 12)
        self.likelihood = Likelihood()

    def forward(self, z, x):
        mean, scale = self.net(z).chunk(2, -1)
        return self.likelihood(mean, F.relu(scale + 1.0), x)


torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 10), nn.ELU(), nn.Linear(10, 3))
decoder = Decoder()
opt_e = torch.optim.Adam(encoder.parameters(), lr=1e-3)
opt_d = torch.optim.SGD(decoder.parameters(), lr=0.3)
for step in range(25):
    x = torch.randn(8, 6) * 0.1
    z = encoder(x)
    nll = decoder(z, x).mean()
    opt_e.zero_grad()
    opt_d.zero_grad()
    nll.backward()
    opt_e.step()
    opt_d.step()
    print(step, nll.item())
