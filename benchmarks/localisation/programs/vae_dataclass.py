"""A VAE returns a dataclass; the log-variance of an outlier is so large that exp overflows in the KL term."""
# op: aten.exp
# phase: loss
# module: -
# conditions: dataclass-output loop rng

from dataclasses import dataclass

import torch
from torch import Tensor, nn
import torch.nn.functional as F


@dataclass
class Output:
    reconstruction: Tensor
    mean: Tensor
    logvar: Tensor


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(10, 8)
        self.mean = nn.Linear(8, 2)
        self.logvar = nn.Linear(8, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 10))

    def forward(self, x) -> Output:
        h = F.relu(self.encoder(x))
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar.clamp(max=10))
        return Output(self.decoder(z), mean, logvar)


def elbo(out: Output, x: Tensor) -> Tensor:
    rec = F.mse_loss(out.reconstruction, x)
    kl = -0.5 * (1 + out.logvar - out.mean.pow(2) - out.logvar.exp()).sum(-1)  # <-- origin
    return rec + 0.01 * kl.mean()


torch.manual_seed(0)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
for step in range(6):
    x = torch.rand(8, 10)
    if step == 3:
        x[0] = 20000 * torch.relu(vae.logvar.weight[0] @ vae.encoder.weight).detach()
    loss = elbo(vae(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
