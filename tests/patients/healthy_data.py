"""Healthy: data of odd scales, shares and orders that do no harm."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import IterableDataset, get_worker_info

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.register import healthy
from patients.sick_data import Noisy, NoisyByGlobal, Stream, epochs, houses, pixels, worked

# -- scales --------------------------------------------------------------------------------------------------------


class Dividing(nn.Module):
    """Takes pixels as they are, and divides them itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(144, 64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x.flatten(1) / 255 - 0.5)
        return out


@healthy()
def pixels_divided_by_the_model() -> sg.TrainingDebugger:
    model = Dividing()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *pixels(), 250)


@healthy()
def pixels_behind_batch_norm() -> sg.TrainingDebugger:
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 10))
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *pixels(), 250)


@healthy()
def pixels_that_train_all_the_same() -> sg.TrainingDebugger:
    """Raw pixels, Adam at a low rate: after an ugly start it learns."""
    x, y = pixels()
    model = mlp(144, 64, 10)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x.flatten(1), y, 300)


@healthy()
def columns_behind_batch_norm() -> sg.TrainingDebugger:
    """Age and income as they stand in the table, normalised by the model."""
    count = 600
    x = torch.cat([20 + 50 * torch.rand(count, 1), 1e5 * torch.rand(count, 1), torch.rand(count, 4)], 1)
    y = (x[:, 0] / 50 + x[:, 1] / 1e5 + x[:, 2] > 1.9).long()
    model = nn.Sequential(nn.BatchNorm1d(6), *mlp(6, 32, 2))
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y, 250)


@healthy()
def line_through_raw_numbers() -> sg.TrainingDebugger:
    """x from 0 to 100, and a rate that fits."""
    x = 100 * torch.rand(400, 1)
    y = 3 * x + 5 + torch.randn(400, 1)
    model = nn.Linear(1, 1)
    return fit(model, torch.optim.SGD(model.parameters(), lr=1e-4), x, y, 300)


@healthy()
def targets_around_twenty() -> sg.TrainingDebugger:
    """House prices in thousands, as in the old textbook: 22 on average."""
    x = torch.randn(500, 13)
    y = 22 + 6 * x[:, :1] - 4 * x[:, 1:2] + 2 * torch.randn(500, 1)
    model = mlp(13, 64, 64, 1)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 300)


@healthy()
def targets_in_the_hundreds() -> sg.TrainingDebugger:
    """A rate of 0.01 gets there in a hundred steps."""
    x = torch.randn(500, 10)
    y = 150 + 40 * x[:, :1] + 25 * x[:, 1:2] + 5 * torch.randn(500, 1)
    model = mlp(10, 64, 64, 1)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y, 300)


@healthy()
def prices_with_the_bias_set() -> sg.TrainingDebugger:
    """The output is scaled by the model: mean and deviation are part of it."""
    x, y = houses()
    mean, std = y.mean(), y.std()

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp(8, 64, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inner(x) * std + mean
            return out

    model = Scaled()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y, 250)


@healthy()
def returns_of_long_episodes() -> sg.TrainingDebugger:
    """A value function: returns grow to 200 as the policy gets better."""
    model = mlp(4, 64, 64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for at in range(300):
            x = torch.randn(64, 4)
            y = (20 + 180 * min(1.0, at / 200)) * (1 + 0.1 * x[:, :1])
            optimizer.zero_grad()
            F.smooth_l1_loss(model(x), y).backward()
            optimizer.step()
    return watch


# -- shares --------------------------------------------------------------------------------------------------------


@healthy()
def rare_class_that_is_found() -> sg.TrainingDebugger:
    """5 % of the samples, well apart from the rest."""
    y = (torch.rand(2000) < 0.05).long()
    x = torch.randn(2000, 10)
    x[:, :3] += 2.5 * y[:, None]
    model = mlp(10, 32, 2)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 400)


@healthy()
def rare_clicks() -> sg.TrainingDebugger:
    """4 % clicks: the ranking is learned, no probability passes a half, and none should."""
    x = torch.randn(8000, 8)
    y = torch.bernoulli(torch.sigmoid(0.9 * x[:, 0] - 0.7 * x[:, 1] - 3.5))
    model = mlp(8, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 400, 128):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(xb).squeeze(1), yb).backward()
            optimizer.step()
    return watch


@healthy()
def rare_class_that_is_weighed() -> sg.TrainingDebugger:
    y = (torch.rand(2000) < 0.04).long()
    x = torch.randn(2000, 10)
    x[:, :2] += y[:, None]
    model = mlp(10, 16, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([0.52, 12.5]))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            optimizer.zero_grad()
            loss_fn(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def mostly_background() -> sg.TrainingDebugger:
    """Segmentation: 95 % of the places are background."""
    x = torch.randn(200, 1, 12, 12)
    y = (F.avg_pool2d(x, 3, 1, 1)[:, 0] > 0.55).long()
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), x, y, 250)


# -- labels --------------------------------------------------------------------------------------------------------


@healthy()
def rings_that_start_at_chance() -> sg.TrainingDebugger:
    """Nothing can be seen in single features, and plain SGD needs its time."""
    x = torch.randn(2000, 2)
    y = (x.norm(dim=1) > 1.18).long()
    model = mlp(2, 16, 2, activation=nn.Tanh)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.05), x, y, 600)


@healthy()
def exclusive_or_that_takes_long() -> sg.TrainingDebugger:
    x = torch.randn(1500, 6)
    y = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).long()
    model = mlp(6, 32, 2)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 500)


@healthy()
def hardly_better_than_chance() -> sg.TrainingDebugger:
    """Up or down tomorrow: 54 % can be known."""
    x = torch.randn(6000, 6)
    y = (0.12 * x[:, 0] + torch.randn(6000) > 0).long()
    model = mlp(6, 16, 2)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 500)


# -- order ---------------------------------------------------------------------------------------------------------


@healthy()
def mixed_already() -> sg.TrainingDebugger:
    """A loader that does not shuffle, over data that need none."""
    x, y = data.blobs(640)
    model = mlp(20, 32, 4)
    return epochs(model, torch.optim.Adam(model.parameters()), x, y, 5)


@healthy()
def sorted_in_one_batch() -> sg.TrainingDebugger:
    """All data at once, one class after the other: the order within a batch does not matter."""
    x = torch.cat([torch.randn(50, 2) + 1.5, torch.randn(50, 2) - 1.5])
    y = torch.cat([torch.zeros(50), torch.ones(50)]).long()
    model = mlp(2, 16, 2)
    return epochs(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y, 100, batch=100)


@healthy()
def few_classes_a_batch() -> sg.TrainingDebugger:
    """Metric learning: four classes of eight samples, chosen anew for each batch."""
    centres = 2 * torch.randn(30, 16)
    model = mlp(16, 64, 30)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(200):
            y = torch.randperm(30)[:4].repeat_interleave(8)
            optimizer.zero_grad()
            F.cross_entropy(model(centres[y] + torch.randn(32, 16)), y).backward()
            optimizer.step()
    return watch


@healthy()
def one_task_after_the_other() -> sg.TrainingDebugger:
    """Continual learning: two new classes every hundred steps, old ones replayed."""
    centres = 2 * torch.randn(6, 16)
    model = mlp(16, 64, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for task in range(3):
            for _ in range(100):
                y = torch.randint(2 * task, 2 * task + 2, (24,))
                y = torch.cat([y, torch.randint(0, 2 * task + 2, (8,))])
                optimizer.zero_grad()
                F.cross_entropy(model(centres[y] + torch.randn(32, 16)), y).backward()
                optimizer.step()
    return watch


@healthy()
def line_in_order() -> sg.TrainingDebugger:
    """The first tutorial, in batches that are not shuffled: points from left to right."""
    x = torch.linspace(-1, 1, 320).unsqueeze(1)
    y = 2 * x + 0.5 + 0.1 * torch.randn(320, 1)
    model = nn.Linear(1, 1)
    return epochs(model, torch.optim.SGD(model.parameters(), lr=0.05), x, y, 8, batch=16)


@healthy()
def series_in_order() -> sg.TrainingDebugger:
    """Windows of a time series, as time goes by."""
    t = torch.arange(700) / 20
    series = torch.sin(t) + 0.3 * torch.sin(3.1 * t) + 0.05 * torch.randn(700)
    x = torch.stack([series[i : i + 20] for i in range(640)])
    model = mlp(20, 32, 1)
    return epochs(model, torch.optim.Adam(model.parameters()), x, series[20:660, None], 6, batch=16)


# -- workers -------------------------------------------------------------------------------------------------------


class NoisyByIndex(Noisy):
    """Each sample has a generator of its own."""

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(at)
        return self.x[at] + 0.1 * torch.from_numpy(rng.normal(size=8)).float(), self.x[at, :1]


class SharedOut(IterableDataset[tuple[Tensor, Tensor]]):
    """Every worker reads its own part."""

    def __init__(self) -> None:
        self.x = torch.randn(160, 8)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        info = get_worker_info()
        for x in islice(self.x, info.id if info else 0, None, info.num_workers if info else 1):
            yield x, x[:1]


def seed_anew(worker: int) -> None:
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(torch.initial_seed() + worker)  # type: ignore[union-attr, attr-defined]


@healthy()
def workers_draw_by_index() -> sg.TrainingDebugger:
    return worked(NoisyByIndex(), shuffle=True)


@healthy()
def workers_are_seeded_anew() -> sg.TrainingDebugger:
    return worked(Noisy(), shuffle=True, worker_init_fn=seed_anew)


@healthy()
def workers_draw_from_numpy() -> sg.TrainingDebugger:
    """Torch seeds NumPy's global generator in each worker."""
    return worked(NoisyByGlobal(), shuffle=True)


@healthy()
def workers_share_the_stream() -> sg.TrainingDebugger:
    return worked(SharedOut())


@healthy()
def one_worker_reads_all() -> sg.TrainingDebugger:
    return worked(Stream(), num_workers=1)
