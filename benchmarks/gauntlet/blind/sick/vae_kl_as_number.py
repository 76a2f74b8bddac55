"""The KL term is added as a Python number (.item()), so it is logged but has no gradient: the posterior is never regularised and samples from the prior are garbage."""
# expects: detached-loss
# report: https://androidkt.com/how-to-calculate-running-loss-using-loss-item-in-pytorch/
import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self, d=16, z=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 64), nn.ReLU())
        self.mu, self.logvar = nn.Linear(64, z), nn.Linear(64, z)
        self.dec = nn.Sequential(nn.Linear(z, 64), nn.ReLU(), nn.Linear(64, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def loss_function(recon, x, mu, logvar, beta=0.5):
    rec = ((recon - x) ** 2).sum(1).mean()
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean().item()
    return rec + beta * kl, rec.item(), kl


def main():
    torch.manual_seed(0)
    A = torch.randn(3, 16)
    latent = torch.randn(4000, 3)
    data = torch.tanh(latent @ A) + 0.05 * torch.randn(4000, 16)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(8):
        for b in torch.randperm(4000).split(64):
            recon, mu, logvar = model(data[b])
            loss, rec, kl = loss_function(recon, data[b], mu, logvar)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: loss {loss.item():.3f} rec {rec:.3f} kl {kl:.3f}")


main()
