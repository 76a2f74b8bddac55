"""Healthy, though they look odd: constant offsets, floors near the start, sudden changes that are meant."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.healthy_models import convnet, pretrained
from patients.register import healthy


@healthy()
def likelihood_with_constant() -> sg.TrainingDebugger:
    """A Gaussian likelihood of 784 pixels with its log(2 pi): from 800 to 760, of which 720 is a constant."""
    x, _ = data.images(400, 10, 28, noise=0.3)
    x = 0.3 * x.flatten(1)
    model = nn.Sequential(*mlp(784, 32, 4), *mlp(4, 32, 784))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 500):
            loss = 0.5 * (model(xb) - xb).pow(2).sum(1).mean() + 784 * 0.5 * math.log(2 * math.pi)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def preference_optimisation() -> sg.TrainingDebugger:
    """DPO: starts at exactly log 2 and moves slowly, at a small rate, on noisy preferences."""
    policy, x, y = pretrained()
    reference = mlp(20, 64, 64, 4)
    reference.load_state_dict(policy.state_dict())
    reference.requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)
    with sg.watch(policy, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 500):
            good = torch.where(torch.rand(len(yb)) < 0.3, yb, (yb + 1) % 4)
            bad = (yb + 2) % 4
            new, old = F.log_softmax(policy(xb), 1), F.log_softmax(reference(xb), 1)
            gain = (new - old).gather(1, good.unsqueeze(1)) - (new - old).gather(1, bad.unsqueeze(1))
            loss = -F.logsigmoid(0.1 * gain).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def reward_model() -> sg.TrainingDebugger:
    """Pairs that people do not agree on: from log 2 to 0.66."""
    x, z = torch.randn(3000, 16), torch.randn(3000, 16)
    better = torch.bernoulli(torch.sigmoid(0.5 * (x[:, 0] - z[:, 0]))).bool()
    model = mlp(16, 32, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for at, _ in data.batches(torch.arange(3000), x, 600, 64):
            gap = (model(x[at]) - model(z[at])).squeeze(1)
            loss = -F.logsigmoid(torch.where(better[at], gap, -gap)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def soft_targets() -> sg.TrainingDebugger:
    """Cross-entropy to soft labels: the floor is their entropy, hardly below the start."""
    x, y = data.blobs(1000, 20, 10)
    soft = 0.25 * F.one_hot(y, 10) + 0.075
    model = mlp(20, 64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, soft, 600, 64):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def nearly_random_text() -> sg.TrainingDebugger:
    """Tokens with a skewed frequency and nothing else to predict: from log 64 to their entropy, then flat."""
    chances = torch.softmax(0.45 * torch.randn(64), 0)
    tokens = torch.multinomial(chances, 20_000, replacement=True)
    model = nn.Sequential(nn.Embedding(64, 24), nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(500):
            x, y = data.windows(tokens, 32, 16)
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            optimizer.step()
    return watch


@healthy()
def pruning_rounds() -> sg.TrainingDebugger:
    """A fifth of the weights is cut every 100 steps, five times; the loss jumps and comes back."""
    x, y = data.images(noise=0.4)
    model = convnet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 280)):
            if i and i % 50 == 0:
                for layer in (model[0], model[4], model[-1]):
                    with torch.no_grad():
                        small = layer.weight.abs() < layer.weight.abs().flatten().quantile(0.5)
                        layer.weight[small] = 0.0
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def pruning_reparametrised() -> sg.TrainingDebugger:
    """torch.nn.utils.prune: the weight becomes weight_orig times a mask in the middle of the run."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    prune.random_unstructured(model[0], "weight", amount=0.5)
    return fit(model, torch.optim.Adam(model.parameters(), lr=2e-3), x, y)


@healthy()
def concept_drift() -> sg.TrainingDebugger:
    """Online learning: the truth turns slowly, so the loss never settles, and rises now and then."""
    model = mlp(4, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i in range(900):
            x = torch.randn(16, 4)
            y = x[:, :1] * math.cos(i / 150) + x[:, 1:2] * math.sin(i / 150)
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def adversarial_example() -> sg.TrainingDebugger:
    """The input is the parameter, and the loss of the true class is maximised within a small ball."""
    net, x, y = pretrained()
    net.requires_grad_(False)
    patch = nn.Module()
    patch.delta = nn.Parameter(torch.zeros(64, 20))
    optimizer = torch.optim.Adam(patch.parameters(), lr=0.05)
    with sg.watch(patch, optimizer, sinks=[]) as watch:
        for _ in range(150):
            loss = -F.cross_entropy(net(x[:64] + patch.delta), y[:64])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                patch.delta.clamp_(-2.0, 2.0)
    return watch


@healthy()
def deep_dream() -> sg.TrainingDebugger:
    """Activations of a frozen net are made as large as they go, for a hundred steps: meant to fall without end."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()).requires_grad_(False)
    canvas = nn.Module()
    canvas.picture = nn.Parameter(0.1 * torch.randn(1, 3, 16, 16))
    optimizer = torch.optim.Adam(canvas.parameters(), lr=0.05)
    with sg.watch(canvas, optimizer, sinks=[]) as watch:
        for _ in range(120):
            optimizer.zero_grad()
            (-net(canvas.picture).norm()).backward()
            optimizer.step()
    return watch


@healthy()
def hinge_svm() -> sg.TrainingDebugger:
    x, y = data.blobs(300, 5, 2, spread=0.4)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, (2.0 * y - 1).unsqueeze(1), 500):
            optimizer.zero_grad()
            F.relu(1 - yb * model(xb)).mean().backward()
            optimizer.step()
    return watch


@healthy()
def dice_segmentation() -> sg.TrainingDebugger:
    """1 - dice on small blobs: stays near 1 at first, then falls."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(200):
            mask = F.max_pool2d((torch.rand(8, 1, 16, 16) < 0.005).float(), 3, 1, 1)
            p = torch.sigmoid(model(mask + 0.5 * torch.randn_like(mask)))
            loss = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def scheduled_sampling() -> sg.TrainingDebugger:
    """Teacher forcing is faded out: the task gets harder, the loss rises slowly, and the model gets better."""
    cell, out = nn.GRUCell(1, 24), nn.Linear(24, 1)
    model = nn.ModuleList([cell, out])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i in range(150):
            start = 6 * torch.rand(16, 1)
            series = torch.sin(start + 0.5 * torch.arange(13)) + 0.05 * torch.randn(16, 13)
            h, x, loss = torch.zeros(16, 24), series[:, :1], torch.zeros(())
            for t in range(1, 13):
                h = cell(x, h)
                guess = out(h)
                loss = loss + F.mse_loss(guess, series[:, t : t + 1]) / 12
                x = guess if float(torch.rand(())) < i / 150 else series[:, t : t + 1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


class Binarise(torch.autograd.Function):
    """Sign forwards, straight through backwards."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return torch.sign(x)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad


@healthy()
def binary_weights() -> sg.TrainingDebugger:
    """Weights of -1 and 1 with a straight-through gradient: the loss is noisy by nature."""

    class BinaryLinear(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, Binarise.apply(self.weight) * self.in_features**-0.5, self.bias)

    model = nn.Sequential(BinaryLinear(20, 64), nn.BatchNorm1d(64), nn.Hardtanh(), BinaryLinear(64, 4))
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), *data.blobs(), 400)


@healthy()
def bayesian_net() -> sg.TrainingDebugger:
    """Weights with a mean and a spread; the KL term is thousands of times the fit and falls slowly."""

    class Bayes(nn.Module):
        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            self.mean = nn.Parameter(torch.randn(after, before) * before**-0.5)
            self.rho = nn.Parameter(torch.full((after, before), -4.0))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.mean + F.softplus(self.rho) * torch.randn_like(self.rho))

        def divergence(self) -> Tensor:
            s = F.softplus(self.rho)
            return (0.5 * (s**2 + self.mean**2 - 1) - s.log()).sum()

    x, y = data.regression()
    one, two = Bayes(10, 64), Bayes(64, 1)
    model = nn.Sequential(one, nn.Tanh(), two)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 500):
            loss = 512 * F.mse_loss(model(xb), yb) + one.divergence() + two.divergence()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def sinusoidal_net() -> sg.TrainingDebugger:
    """SIREN: sines of 30 times the input, its own initialisation."""

    class Sine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(30 * x)

    model = nn.Sequential(nn.Linear(2, 64), Sine(), nn.Linear(64, 64), Sine(), nn.Linear(64, 1))
    nn.init.uniform_(model[0].weight, -0.5, 0.5)
    for at in (2, 4):
        nn.init.uniform_(model[at].weight, -((6 / 64) ** 0.5) / 30, (6 / 64) ** 0.5 / 30)
    x = 2 * torch.rand(1000, 2) - 1
    y = torch.sin(8 * x[:, :1]) * torch.cos(5 * x[:, 1:])
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-4), x, y, 400)


@healthy()
def meta_learning() -> sg.TrainingDebugger:
    """MAML on sines: a gradient step inside the loss, a new task each time, so the loss is very noisy."""
    model = mlp(1, 32, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    names = [name for name, _ in model.named_parameters()]
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(200):
            height, shift = 0.1 + 4.9 * torch.rand(()), 3 * torch.rand(())
            x, z = 10 * torch.rand(10, 1) - 5, 10 * torch.rand(10, 1) - 5
            inner = F.mse_loss(model(x), height * torch.sin(x + shift))
            grads = torch.autograd.grad(inner, list(model.parameters()), create_graph=True)
            fast = {n: p - 0.01 * g for n, p, g in zip(names, model.parameters(), grads, strict=True)}
            loss = F.mse_loss(torch.func.functional_call(model, fast, (z,)), height * torch.sin(z + shift))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def imputed_inputs() -> sg.TrainingDebugger:
    """NaN in the inputs, which the model itself replaces."""

    class Impute(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([torch.nan_to_num(x), torch.isnan(x).float()], 1)

    x, y = data.blobs()
    x[torch.rand_like(x) < 0.1] = float("nan")
    model = nn.Sequential(Impute(), *mlp(40, 64, 4))
    return fit(model, torch.optim.Adam(model.parameters()), x, y)


@healthy()
def penalty_dominates() -> sg.TrainingDebugger:
    """The loss that is minimised holds a large penalty on the distance to fixed anchors that can hardly be lowered."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    anchors = 3 * torch.randn(40, 20)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 400):
            fixed = anchors.pow(2).sum(1).mean()
            loss = F.cross_entropy(model(xb), yb) + fixed
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch
