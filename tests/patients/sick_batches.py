"""Sick: the same batch again and again, inputs whose scale jumps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import sick
from patients.sick_modes import normed


@sick("repeated-batch")
def first_batch_forever() -> sg.TrainingDebugger:
    """`next(iter(loader))` in the loop, without shuffling."""
    x, y = data.blobs()
    loader = DataLoader(TensorDataset(x, y), batch_size=32)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(60):
            xb, yb = next(iter(loader))
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


class Forgetful(Dataset[tuple[Tensor, Tensor]]):
    """Ignores its index."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[0], self.y[0]


@sick("repeated-batch")
def index_ignored() -> sg.TrainingDebugger:
    x, y = data.images(256)
    model = mlp(144, 64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            for xb, yb in DataLoader(Forgetful(x.flatten(1), y), batch_size=16, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
    return watch


@sick("repeated-batch")
def seeded_at_each_step() -> sg.TrainingDebugger:
    """A helper that draws a batch, and sets the seed each time "to be reproducible"."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def draw() -> tuple[Tensor, Tensor]:
        torch.manual_seed(7)
        at = torch.randint(0, len(x), (32,))
        return x[at], y[at]

    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(60):
            xb, yb = draw()
            optimizer.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("input-drift")
def second_source_in_bytes() -> sg.TrainingDebugger:
    """From step 60 on the pictures come from files that hold 0 to 255."""
    x, y = data.images()
    model = normed()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 120)):
            given = xb if step < 60 else 60.0 * xb + 120.0
            optimizer.zero_grad()
            F.cross_entropy(model(given), yb).backward()
            optimizer.step()
    return watch


@sick("input-drift")
def sensor_goes_blank() -> sg.TrainingDebugger:
    """From step 50 on all features are constant."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 120)):
            optimizer.zero_grad()
            F.mse_loss(model(xb if step < 50 else torch.zeros_like(xb)), yb).backward()
            optimizer.step()
    return watch


@sick("input-drift")
def every_fifth_not_normalised() -> sg.TrainingDebugger:
    """A third loader joins after a while; its batches are not normalised."""
    x, y = data.blobs()
    model = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 150)):
            optimizer.zero_grad()
            F.cross_entropy(model(1000.0 * xb if step > 50 and step % 5 == 0 else xb), yb).backward()
            optimizer.step()
    return watch
