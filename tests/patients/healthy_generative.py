"""Healthy: models that generate: autoencoders, likelihoods, adversaries."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import healthy


@healthy()
def autoencoder() -> sg.TrainingDebugger:
    x, _ = data.images(noise=0.2)
    x = x.flatten(1)
    model = nn.Sequential(*mlp(144, 64, 8), *mlp(8, 64, 144))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 400):
            optimizer.zero_grad()
            F.mse_loss(model(xb), xb).backward()
            optimizer.step()
    return watch


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = mlp(144, 64, 16), mlp(8, 64, 144)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_var = self.encode(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(1).mean()
        return self.decode(z), kl


@healthy()
def vae() -> sg.TrainingDebugger:
    """The ELBO, summed over pixels: hundreds at the start, a high floor."""
    x, _ = data.images(noise=0.5)
    x = x.flatten(1)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 400):
            out, kl = model(xb)
            loss = 0.5 * (out - xb).pow(2).sum(1).mean() + kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def vae_kl_annealing() -> sg.TrainingDebugger:
    """The KL term is warmed up, so the loss rises slowly over most of the run."""
    x, _ = data.images(noise=0.2)
    x = x.flatten(1)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, _) in enumerate(data.batches(x, x, 400)):
            out, kl = model(xb)
            loss = F.mse_loss(out, xb) + min(1.0, i / 350) * kl / 10
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def normalizing_flow() -> sg.TrainingDebugger:
    """RealNVP on a thin ring: the negative log-likelihood goes below zero."""

    class Coupling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(1, 32, 2, activation=nn.Tanh)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            a, b = x.chunk(2, 1)
            log_scale, shift = self.net(a).chunk(2, 1)
            log_scale = torch.tanh(log_scale)
            return torch.cat([b * log_scale.exp() + shift, a], 1), log_scale.sum(1)

    model = nn.ModuleList([Coupling() for _ in range(6)])
    angle = 2 * torch.pi * torch.rand(1000)
    x = 0.3 * torch.stack([angle.cos(), angle.sin()], 1) + 0.01 * torch.randn(1000, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 180, 64):
            z, log_det = xb, torch.zeros(len(xb))
            for layer in model:
                z, change = layer(z)
                log_det = log_det + change
            loss = (0.5 * z.pow(2).sum(1) + math.log(2 * math.pi) - log_det).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def gaussian_likelihood() -> sg.TrainingDebugger:
    """A net that predicts mean and variance: the loss crosses zero and goes on falling."""
    x, y = data.regression(noise=0.02)
    model = mlp(10, 64, 64, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, 0.01 * y, 400):
            mean, raw = model(xb).chunk(2, 1)
            loss = F.gaussian_nll_loss(mean, yb, F.softplus(raw) + 1e-6)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def diffusion() -> sg.TrainingDebugger:
    """Predicts the noise that was added: from 1.0 down to a high, noisy floor."""
    x, _ = data.spirals()
    model = mlp(3, 64, 64, 2, activation=nn.SiLU)
    alpha = torch.cumprod(1 - torch.linspace(1e-4, 0.05, 100), 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 400, 64):
            t, noise = torch.randint(0, 100, (64,)), torch.randn(64, 2)
            a = alpha[t].unsqueeze(1)
            noisy = a.sqrt() * xb + (1 - a).sqrt() * noise
            loss = F.mse_loss(model(torch.cat([noisy, t.unsqueeze(1) / 100], 1)), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


def gan(kind: str, steps: int = 250) -> sg.TrainingDebugger:
    x, _ = data.spirals()
    G, D = mlp(8, 32, 32, 2), mlp(2, 32, 32, 1, activation=nn.LeakyReLU)  # noqa: N806
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
    with sg.watch({"generator": G, "discriminator": D}, [opt_g, opt_d], sinks=[]) as watch:
        for real, _ in data.batches(x, x, steps, 64):
            fake = G(torch.randn(64, 8))
            on_real, on_fake = D(real), D(fake.detach())
            if kind == "bce":
                loss_d = F.softplus(-on_real).mean() + F.softplus(on_fake).mean()
            elif kind == "hinge":
                loss_d = F.relu(1 - on_real).mean() + F.relu(1 + on_fake).mean()
            else:
                between = torch.lerp(real, fake.detach(), torch.rand(64, 1)).requires_grad_(True)
                (slope,) = torch.autograd.grad(D(between).sum(), between, create_graph=True)
                loss_d = on_fake.mean() - on_real.mean() + 10 * (slope.norm(dim=1) - 1).pow(2).mean()
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            out = D(fake)
            loss_g = F.softplus(-out).mean() if kind == "bce" else -out.mean()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
    return watch


@healthy()
def gan_bce() -> sg.TrainingDebugger:
    return gan("bce")


@healthy()
def gan_hinge() -> sg.TrainingDebugger:
    return gan("hinge")


@healthy()
def gan_wasserstein() -> sg.TrainingDebugger:
    return gan("wgan-gp", 150)


@healthy()
def gan_dcgan_tutorial() -> sg.TrainingDebugger:
    """The DCGAN tutorial's loop: weights of std 0.02, two backwards for the discriminator, BCE on sigmoids."""

    def init(module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(module.weight, 0.0, 0.02)

    G = nn.Sequential(  # noqa: N806
        nn.ConvTranspose2d(16, 16, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    D = nn.Sequential(  # noqa: N806
        nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 1, 4, bias=False), nn.Sigmoid(),
    )  # fmt: skip
    G.apply(init)
    D.apply(init)
    x, _ = data.images(256, 4, 16, noise=0.1)
    x = torch.tanh(x)
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
    with sg.watch([G, D], [opt_g, opt_d], sinks=[]) as watch:
        for real, _ in data.batches(x, x, 120, 16):
            D.zero_grad()
            F.binary_cross_entropy(D(real).view(-1), torch.ones(16)).backward()
            fake = G(torch.randn(16, 16, 1, 1))
            F.binary_cross_entropy(D(fake.detach()).view(-1), torch.zeros(16)).backward()
            opt_d.step()
            G.zero_grad()
            F.binary_cross_entropy(D(fake).view(-1), torch.ones(16)).backward()
            opt_g.step()
    return watch


@healthy()
def vector_quantised() -> sg.TrainingDebugger:
    """VQ-VAE: three terms, a codebook of which few codes are used; the loss rises while codes are found."""
    x, _ = data.images(noise=0.2)
    x = x.flatten(1)
    encode, decode, codes = mlp(144, 64, 8), mlp(8, 64, 144), nn.Embedding(32, 8)
    nn.init.uniform_(codes.weight, -1 / 32, 1 / 32)
    model = nn.ModuleDict({"encode": encode, "decode": decode, "codes": codes})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 400):
            z = encode(xb)
            q = codes(torch.cdist(z, codes.weight).argmin(1))
            out = decode(z + (q - z).detach())
            loss = F.mse_loss(out, xb) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def restricted_boltzmann_machine() -> sg.TrainingDebugger:
    """Contrastive divergence: the difference of two free energies, around zero with either sign."""
    model = nn.Module()
    model.W = nn.Parameter(0.01 * torch.randn(32, 64))
    model.v, model.h = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(32))
    x = (data.images(400, 5, 8, noise=0.2)[0].flatten(1) > 0).float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def energy(v: Tensor) -> Tensor:
        return (-v @ model.v - F.softplus(F.linear(v, model.W, model.h)).sum(1)).mean()

    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 500):
            with torch.no_grad():
                h = torch.bernoulli(torch.sigmoid(F.linear(xb, model.W, model.h)))
                v = torch.bernoulli(torch.sigmoid(F.linear(h, model.W.T, model.v)))
            loss = energy(xb) - energy(v)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def critic_alone() -> sg.TrainingDebugger:
    """Only the critic of a Wasserstein GAN is watched: its loss is negative and hovers."""
    x, _ = data.spirals()
    G, D = mlp(8, 32, 2), mlp(2, 32, 32, 1)  # noqa: N806
    opt_g, opt_d = torch.optim.RMSprop(G.parameters(), lr=5e-4), torch.optim.RMSprop(D.parameters(), lr=5e-4)
    with sg.watch(D, opt_d, sinks=[]) as watch:
        for i, (real, _) in enumerate(data.batches(x, x, 500, 64)):
            opt_d.zero_grad()
            (D(G(torch.randn(64, 8)).detach()).mean() - D(real).mean()).backward()
            opt_d.step()
            with torch.no_grad():
                for p in D.parameters():
                    p.clamp_(-0.1, 0.1)
            if i % 5 == 4:
                opt_g.zero_grad()
                (-D(G(torch.randn(64, 8))).mean()).backward()
                opt_g.step()
    return watch


@healthy()
def discriminator_alone() -> sg.TrainingDebugger:
    """Only the discriminator is watched, and the generator is good: it stays at 2 log 2, as theory has it."""
    D = mlp(2, 32, 1, activation=nn.LeakyReLU)  # noqa: N806
    optimizer = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
    with sg.watch(D, optimizer, sinks=[]) as watch:
        for _ in range(500):
            real, fake = torch.randn(128, 2), torch.randn(128, 2) + 0.02
            optimizer.zero_grad()
            (F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()).backward()
            optimizer.step()
    return watch
