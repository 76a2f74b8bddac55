"""Sick: learning rates too high, too low, and schedules gone wrong."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.healthy_models import CharTransformer, convnet
from patients.register import sick

NONFINITE = ("nonfinite-loss", "nonfinite-gradient", "nonfinite-parameter")
DIVERGED = ("lr-too-high", "loss-explosion", "gradient-explosion", *NONFINITE)


@sick("lr-too-high")
def sgd_far_too_fast() -> sg.TrainingDebugger:
    """SGD at 10 on an MLP."""
    model = mlp(20, 64, 64, 4)
    return fit(model, torch.optim.SGD(model.parameters(), lr=10.0), *data.blobs(), 200)


@sick(*DIVERGED)
def sgd_regression_too_fast() -> sg.TrainingDebugger:
    """The most asked question: linear regression on unscaled features, loss goes to NaN."""
    x = torch.rand(200, 1) * 100
    y = 3 * x + 7 + torch.randn(200, 1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(100):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch


@sick("lr-too-high")
def adam_at_one() -> sg.TrainingDebugger:
    """Adam with lr=1.0 on an MLP: it moves everything everywhere."""
    model = mlp(20, 64, 64, 4)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1.0), *data.blobs(), 250)


@sick(
    "lr-too-high", "loss-plateau", "loss-explosion", missed="the loss falls; that it could fall further is not certain"
)
def adam_transformer_too_fast() -> sg.TrainingDebugger:
    """A transformer at 0.3, a thousand times too much: the loss goes up and stays."""
    tokens, kinds = data.text()
    model = CharTransformer(kinds)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(150):
            x, y = data.windows(tokens, 32, 4)
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            optimizer.step()
    return watch


@sick("lr-too-high", "loss-plateau", "gradient-vanishing")
def convnet_too_fast() -> sg.TrainingDebugger:
    """A CNN without norm and Adam at 0.3 on a task that is not easy: the ReLUs die, the loss stays at log(10)."""
    model = convnet(norm=False)
    return fit(model, torch.optim.Adam(model.parameters(), lr=0.3), *data.images(noise=4.0), 300)


@sick(*DIVERGED)
def momentum_too_fast() -> sg.TrainingDebugger:
    """Momentum 0.99 and 0.5 on a regression."""
    model = mlp(10, 64, 1)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.99), *data.regression(), 200)


@sick("lr-too-high", "loss-explosion", "loss-plateau", "nonfinite-loss")
def lstm_too_fast() -> sg.TrainingDebugger:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.LSTM(1, 24, batch_first=True), nn.Linear(24, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(x)[0][:, -1])

    series = torch.sin(torch.arange(900) * 0.2)
    x, y = series.unfold(0, 12, 1)[:-1].unsqueeze(2), series[12:].unsqueeze(1)
    model = Model()
    return fit(model, torch.optim.Adam(model.parameters(), lr=3.0), x, y, 200)


@sick(*DIVERGED, "lr-jump")
def rate_grows_by_mistake() -> sg.TrainingDebugger:
    """ExponentialLR with gamma 1.05 instead of 0.95, stepped with every batch."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = lr_scheduler.ExponentialLR(optimizer, gamma=1.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 250):
            optimizer.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            optimizer.step()
            scheduler.step()
    return watch


@sick("lr-jump", "lr-too-high")
def rate_jumps_mid_run() -> sg.TrainingDebugger:
    """On resuming, someone sets lr=1 instead of 1e-3."""
    x, y = data.blobs()
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 400)):
            if i == 200:
                optimizer.param_groups[0]["lr"] = 1.0
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("lr-jump")
def scheduler_per_batch_kills_rate() -> sg.TrainingDebugger:
    """ExponentialLR(0.9) stepped with every batch: nothing is left after 100 steps, at a high loss."""
    x, y = data.images(noise=1.5)
    model = nn.Sequential(nn.Flatten(), *mlp(144, 64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 500):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            scheduler.step()
    return watch


@sick("lr-jump")
def step_schedule_per_batch() -> sg.TrainingDebugger:
    """StepLR(10, 0.1), meant in epochs, stepped with every batch."""
    x, y = data.images(noise=1.5)
    model = nn.Sequential(nn.Flatten(), *mlp(144, 64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 500):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            scheduler.step()
    return watch


@sick("lr-jump")
def linear_decay_too_short() -> sg.TrainingDebugger:
    """total_iters is the number of epochs: the rate is zero from step 20 on."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=20)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            scheduler.step()
    return watch


@sick("lr-jump")
def warmup_never_begins() -> sg.TrainingDebugger:
    """`step // warmup` in place of `step / warmup`, stepped per epoch: the rate is zero."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda epoch: min(1, epoch // 1000))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(15):
            for xb, yb in data.loader(x, y):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
            scheduler.step()
    return watch


@sick("lr-jump")
def cosine_runs_negative() -> sg.TrainingDebugger:
    """A linear decay by hand that is not clamped: below zero after its end."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 250)):
            optimizer.param_groups[0]["lr"] = 0.1 * (1 - i / 150)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("lr-too-low")
def sgd_hardly_moves() -> sg.TrainingDebugger:
    """lr=1e-9."""
    model = mlp(20, 64, 4)
    return fit(model, torch.optim.SGD(model.parameters(), lr=1e-9), *data.blobs(), 400)


@sick("lr-too-low", "loss-plateau")
def adam_from_scratch_at_1e8() -> sg.TrainingDebugger:
    model = convnet()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-8), *data.images(), 250)


@sick("lr-too-low", "loss-plateau")
def fine_tuning_rate_from_scratch() -> sg.TrainingDebugger:
    """SGD at 1e-6 on a model with random weights, as copied from a fine-tuning script."""
    model = mlp(20, 64, 64, 4)
    return fit(model, torch.optim.SGD(model.parameters(), lr=1e-6), *data.blobs(), 400)


@sick("lr-too-low", "loss-plateau")
def embeddings_hardly_move() -> sg.TrainingDebugger:
    """Matrix factorisation with Adam at 1e-6."""

    class Factors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = nn.Embedding(100, 8), nn.Embedding(80, 8)
            for part in (self.users, self.items):
                nn.init.normal_(part.weight, std=0.1)

        def forward(self, pairs: Tensor) -> Tensor:
            return (self.users(pairs[:, 0]) * self.items(pairs[:, 1])).sum(1)

    truth = torch.randn(100, 4), torch.randn(80, 4)
    pairs = torch.stack([torch.randint(0, 100, (2000,)), torch.randint(0, 80, (2000,))], 1)
    ratings = 3.0 + (truth[0][pairs[:, 0]] * truth[1][pairs[:, 1]]).sum(1)
    model = Factors()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
    return fit(model, optimizer, pairs, ratings, 250)
