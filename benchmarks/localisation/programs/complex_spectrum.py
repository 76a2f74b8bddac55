"""GCC-PHAT whitens a complex spectrum by its magnitude; a silent channel has none."""
# op: aten.div
# phase: forward
# module: phat
# conditions: complex model

import torch
from torch import nn


class Phat(nn.Module):
    def forward(self, a, b):
        cross = torch.fft.rfft(a) * torch.fft.rfft(b).conj()
        whitened = cross / cross.abs()  # <-- origin
        return torch.fft.irfft(whitened, n=a.shape[-1])


class Localiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2))
        self.phat = Phat()
        self.head = nn.Linear(16, 1)

    def forward(self, pair):
        a, b = (pair * self.gain[:, None]).unbind(1)
        return self.head(self.phat(a, b))


torch.manual_seed(0)
model = Localiser()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    pair = torch.randn(6, 2, 16)
    if step == 2:
        pair[3, 1] = 0
    loss = nn.functional.l1_loss(model(pair), torch.randn(6, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
