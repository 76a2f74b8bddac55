"""Healthy: tutorials and first programs, small data, odd scales."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.register import healthy


def mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def fit(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, steps: int = 300
) -> sg.TrainingDebugger:
    """The loop that most programs share: random batches, cross-entropy for classes, squared error for numbers."""
    loss_fn = nn.MSELoss() if y.is_floating_point() else nn.CrossEntropyLoss()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, steps):
            optimizer.zero_grad()
            loss_fn(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def linear_regression() -> sg.TrainingDebugger:
    """The first tutorial: y = 2x + 1, all points at once, plain SGD."""
    x = torch.linspace(0, 1, 100).unsqueeze(1)
    y = 2 * x + 1 + 0.05 * torch.randn(100, 1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(500):
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def polynomial_tutorial() -> sg.TrainingDebugger:
    """PyTorch's "learning by examples": a cubic through a sine, summed loss, RMSprop at 1e-3."""
    x = torch.linspace(-torch.pi, torch.pi, 2000)
    y = torch.sin(x)
    xx = x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    loss_fn = nn.MSELoss(reduction="sum")
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(1000):
            loss = loss_fn(model(xx), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def logistic_regression() -> sg.TrainingDebugger:
    x, y = data.blobs(400, 5, 2)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(25):
            for xb, yb in data.loader(x, y):
                optimizer.zero_grad()
                F.binary_cross_entropy_with_logits(model(xb).squeeze(1), yb.float()).backward()
                optimizer.step()
    return watch


@healthy()
def weak_signal_regression() -> sg.TrainingDebugger:
    """Returns of a stock: 3 % of the targets can be explained. The loss goes from 1.0 to 0.97, and stays."""
    x = torch.randn(4000, 10)
    y = 0.18 * x[:, :1] + torch.randn(4000, 1)
    model = mlp(10, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(6):
            for xb, yb in data.loader(x, y, 64):
                optimizer.zero_grad()
                F.mse_loss(model(xb), yb).backward()
                optimizer.step()
    return watch


@healthy()
def weak_signal_full_batch() -> sg.TrainingDebugger:
    """The same with all points in one batch: no noise at all in the loss, and little to be learned."""
    x = torch.randn(2000, 5)
    y = 0.15 * x[:, :1] + torch.randn(2000, 1)
    model = nn.Linear(5, 1)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(600):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def click_prediction() -> sg.TrainingDebugger:
    """Clicks, hardly predictable: logistic loss 0.693 to about 0.67, large batches."""
    x = torch.randn(8000, 8)
    y = torch.bernoulli(torch.sigmoid(0.35 * x[:, 0] - 0.25 * x[:, 1])).unsqueeze(1)
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 500, 512):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def noisy_labels() -> sg.TrainingDebugger:
    """60 % of the labels are random: it learns a little, and the floor is high."""
    x, y = data.blobs(2000, 20, 10)
    wrong = torch.rand(2000) < 0.6
    y[wrong] = torch.randint(0, 10, (int(wrong.sum()),))
    model = mlp(20, 64, 10)
    return fit(model, torch.optim.Adam(model.parameters()), x, y, 500)


@healthy()
def batch_size_one() -> sg.TrainingDebugger:
    x, y = data.blobs(300, 8, 3, spread=0.6)
    model = mlp(8, 16, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 600, 1):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def overfit_one_batch() -> sg.TrainingDebugger:
    """The usual test of a new model: one batch, again and again, until the loss is nothing."""
    x, y = data.blobs(16, 20, 4)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(800):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def long_converged() -> sg.TrainingDebugger:
    """XOR, trained for long after it was learned: the loss is 1e-7, with the little jumps that Adam makes there."""
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    model = mlp(2, 16, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(1500):
            optimizer.zero_grad()
            F.mse_loss(torch.sigmoid(model(x)), y).backward()
            optimizer.step()
    return watch


@healthy()
def xor_with_sgd() -> sg.TrainingDebugger:
    """The classic: 2-8-1 with sigmoids and plain SGD. It stays near 0.25 for some hundred steps, then falls."""
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    model = nn.Sequential(nn.Linear(2, 8), nn.Sigmoid(), nn.Linear(8, 1), nn.Sigmoid())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(1000):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def huge_targets() -> sg.TrainingDebugger:
    """House prices in dollars, not scaled, but with a model and a rate that cope with it."""
    x, y = data.regression()
    y = 250_000 + 80_000 * y
    model = mlp(10, 64, 1)
    with torch.no_grad():
        model[-1].bias.fill_(float(y.mean()))
        model[-1].weight.mul_(10_000)
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), x, y, 600)


@healthy()
def house_prices_unscaled() -> sg.TrainingDebugger:
    """Targets of some hundreds of thousands and Adam at 0.1: slow from 6e10 on, yet it comes down steadily."""
    x, y = data.regression()
    y = 250_000 + 80_000 * y
    model = mlp(10, 64, 64, 1)
    return fit(model, torch.optim.Adam(model.parameters(), lr=0.03), x, y, 500)


@healthy()
def tiny_targets() -> sg.TrainingDebugger:
    """Targets of about 1e-4 (metres, say): the losses are 1e-8 and still a regression like any other."""
    x, y = data.regression()
    model = mlp(10, 32, 1)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, 1e-4 * y, 600)


@healthy()
def class_imbalance() -> sg.TrainingDebugger:
    """2 % positives with a weighted loss: most batches look alike, some do not."""
    x = torch.randn(4000, 10)
    y = (x[:, 0] + 0.5 * torch.randn(4000) > 2.3).float().unsqueeze(1)
    model = mlp(10, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([30.0]))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 600, 32):
            optimizer.zero_grad()
            loss_fn(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def rare_events() -> sg.TrainingDebugger:
    """Fraud: half a percent positives, batches of 64. Most losses are almost zero; a batch with one in it is not."""
    x = torch.randn(6000, 10)
    y = (x[:, 0] + x[:, 1] > 3.4).float().unsqueeze(1)
    model = mlp(10, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 800, 64):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def outlier_batch() -> sg.TrainingDebugger:
    """One batch of 400 is 50 times as large as the others; with clipping it does no harm."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters())
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 400)):
            optimizer.zero_grad()
            F.cross_entropy(model(50 * xb if i == 250 else xb), yb).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return watch


@healthy()
def heavy_tailed_targets() -> sg.TrainingDebugger:
    """Insurance claims: most are small, a few are a hundred times that."""
    x, y = data.regression(2000)
    y = torch.exp(1.5 * torch.randn_like(y) + 0.5 * y)
    model = mlp(10, 32, 1)
    return fit(model, torch.optim.Adam(model.parameters()), x, y, 600)


@healthy()
def kfold() -> sg.TrainingDebugger:
    """Five folds in one loop: the weights are set back each time, and the loss begins anew."""
    x, y = data.blobs(400)
    model = mlp(20, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for fold in range(5):
            for layer in model:
                if isinstance(layer, nn.Linear):
                    layer.reset_parameters()
            optimizer.state.clear()
            keep = torch.arange(400) % 5 != fold
            for _ in range(8):
                for xb, yb in data.loader(x[keep], y[keep]):
                    optimizer.zero_grad()
                    F.cross_entropy(model(xb), yb).backward()
                    optimizer.step()
    return watch


@healthy()
def resumed() -> sg.TrainingDebugger:
    """Goes on from a checkpoint: the loss starts low and hardly changes."""
    x, y = data.blobs(512, 20, 4, spread=1.2)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for xb, yb in data.batches(x, y, 400):
        optimizer.zero_grad()
        F.cross_entropy(model(xb), yb).backward()
        optimizer.step()
    return fit(model, optimizer, x, y, 400)


@healthy()
def resumed_full_batch() -> sg.TrainingDebugger:
    """A converged regression, loaded and trained on with all points in one batch: it has nothing left to gain."""
    x, y = data.regression(300, noise=0.5)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(400):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def summed_loss_odd_last_batch() -> sg.TrainingDebugger:
    """`reduction="sum"`, and a last batch of each epoch that is much smaller than the others."""
    x, y = data.blobs(520)
    model = mlp(20, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(25):
            for xb, yb in data.loader(x, y, 64):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb, reduction="sum").backward()
                optimizer.step()
    return watch


@healthy()
def float64_model() -> sg.TrainingDebugger:
    x, y = data.regression()
    model = mlp(10, 32, 1, activation=nn.Tanh).double()
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), x.double(), y.double())


@healthy()
def deep_selu() -> sg.TrainingDebugger:
    """Twenty layers of SELU with LeCun's initialisation, as its paper has it."""
    model = mlp(20, *[32] * 20, 4, activation=nn.SELU)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0.0, layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01), *data.blobs())


@healthy()
def deep_relu_default_init() -> sg.TrainingDebugger:
    """Eight ReLU layers with torch's defaults: slow in the first steps, and then it learns."""
    model = mlp(20, *[64] * 8, 4)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *data.blobs(), 400)
