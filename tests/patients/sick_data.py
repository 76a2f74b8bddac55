"""Sick: data. Scales, labels, order, and workers that are all alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.healthy_models import convnet
from patients.register import sick


def epochs(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    count: int,
    *,
    batch: int = 32,
    shuffle: bool = False,
) -> sg.TrainingDebugger:
    """Passes over all data with a loader."""
    loss_fn = nn.MSELoss() if y.is_floating_point() else nn.CrossEntropyLoss()
    loader = DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=shuffle)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(count):
            for xb, yb in loader:
                optimizer.zero_grad()
                loss_fn(model(xb), yb).backward()
                optimizer.step()
    return watch


# -- unnormalized-input --------------------------------------------------------------------------------------------


def pixels(count: int = 512) -> tuple[Tensor, Tensor]:
    """Pictures with values from 0 to 255, as files hold them."""
    x, y = data.images(count)
    return (255 * (x - x.min()) / (x.max() - x.min())).round(), y


@sick("unnormalized-input")
def pixels_up_to_255() -> sg.TrainingDebugger:
    """An MLP on raw pixels, plain SGD."""
    x, y = pixels()
    model = mlp(144, 64, 10)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), x.flatten(1), y, 200)


@sick("unnormalized-input")
def raw_columns() -> sg.TrainingDebugger:
    """Age, income and a few rates, as they stand in the table; the loss begins in the thousands."""
    count = 600
    age, income = 20 + 50 * torch.rand(count), 20_000 + 80_000 * torch.rand(count)
    rates = torch.rand(count, 4)
    x = torch.cat([age[:, None], income[:, None], rates], 1)
    y = ((age - 45) / 15 + (income - 60_000) / 25_000 + 2 * rates[:, 0] - 1 > 0).long()
    model = mlp(6, 32, 2)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 200)


@sick("unnormalized-input")
def large_features_explode() -> sg.TrainingDebugger:
    """A regression on features in the hundreds, with SGD at an ordinary rate: gone in three steps."""
    x, y = data.regression()
    model = mlp(10, 32, 1)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01), 300 * x + 500, y, 60)


@sick("unnormalized-input", "saturated-units")
def pixels_into_tanh() -> sg.TrainingDebugger:
    """Raw pixels saturate every unit: the loss hardly moves."""
    x, y = pixels()
    model = nn.Sequential(nn.Linear(144, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01), x.flatten(1) * 20, y, 300)


# -- unnormalized-target -------------------------------------------------------------------------------------------


def houses(count: int = 500) -> tuple[Tensor, Tensor]:
    """Standardised features, prices in dollars."""
    x = torch.randn(count, 8)
    return x, (200_000 + 60_000 * x[:, :1] + 30_000 * x[:, 1:2] + 5_000 * torch.randn(count, 1)).clamp_min(20_000)


@sick("unnormalized-target")
def house_prices() -> sg.TrainingDebugger:
    """Adam at 1e-3 for an output that has to come to 200,000."""
    model = mlp(8, 64, 64, 1)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *houses(), 150)


@sick("unnormalized-target")
def house_prices_by_sgd() -> sg.TrainingDebugger:
    """The same with SGD: the first step is the last one."""
    model = mlp(8, 64, 64, 1)
    return fit(model, torch.optim.SGD(model.parameters(), lr=1e-2), *houses(), 60)


@sick("unnormalized-target")
def years_by_absolute_error() -> sg.TrainingDebugger:
    """Years of songs, by absolute error: 2000 is far for steps of 1e-4."""
    x = torch.randn(600, 12)
    y = 1990 + 8 * x[:, :1] + 3 * torch.randn(600, 1)
    model = mlp(12, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 200):
            optimizer.zero_grad()
            F.l1_loss(model(xb), yb).backward()
            optimizer.step()
    return watch


# -- class-imbalance -----------------------------------------------------------------------------------------------


@sick("class-imbalance")
def one_in_thirty() -> sg.TrainingDebugger:
    """Defects hardly different from the rest, 3 % of the samples, plain cross-entropy."""
    y = (torch.rand(2000) < 0.03).long()
    x = torch.randn(2000, 10)
    x[:, :2] += 0.4 * y[:, None]
    model = mlp(10, 16, 2)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.05), x, y, 400)


@sick("class-imbalance")
def fraud_with_one_logit() -> sg.TrainingDebugger:
    y = (torch.rand(3000) < 0.05).float()
    x = torch.randn(3000, 16)
    x[:, 0] += 0.3 * y
    model = mlp(16, 16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(8):
            for xb, yb in data.loader(x, y, 64):
                optimizer.zero_grad()
                F.binary_cross_entropy_with_logits(model(xb).squeeze(1), yb).backward()
                optimizer.step()
    return watch


# -- shuffled-labels -----------------------------------------------------------------------------------------------


@sick("shuffled-labels")
def inputs_shuffled_alone() -> sg.TrainingDebugger:
    """`x[perm]`, and y as it was; validated on the same mistake."""
    x, y = data.blobs(1600, 20, 4)
    x = x[torch.randperm(len(x))]
    model = mlp(20, 128, 128, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(30):
            model.train()
            for xb, yb in data.loader(x[:1200], y[:1200]):
                optimizer.zero_grad()
                loss_fn(model(xb), yb).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                watch.validate(loss_fn(model(x[1200:]), y[1200:]))
    return watch


@sick("shuffled-labels")
def fresh_pairs_that_do_not_belong() -> sg.TrainingDebugger:
    """A stream of pictures next to the labels of others: chance for ever."""
    x, y = data.images(6000, 4)
    y = y[torch.randperm(len(y))]
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)
    )
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 500)


# -- unshuffled-data -----------------------------------------------------------------------------------------------


@sick("unshuffled-data")
def sorted_by_class() -> sg.TrainingDebugger:
    """A folder for each class, read in order."""
    x, y = data.images(1280)
    order = y.argsort()
    model = convnet()
    return epochs(model, torch.optim.Adam(model.parameters()), x[order], y[order], 3)


@sick("unshuffled-data")
def sliced_in_order() -> sg.TrainingDebugger:
    """No loader: slices of tensors made one class after the other, two classes, one logit."""
    x = torch.cat([torch.randn(320, 8) + 1, torch.randn(320, 8) - 1])
    y = torch.cat([torch.zeros(320, 1), torch.ones(320, 1)])
    model = mlp(8, 16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(3):
            for at in range(0, 640, 16):
                optimizer.zero_grad()
                F.binary_cross_entropy_with_logits(model(x[at : at + 16]), y[at : at + 16]).backward()
                optimizer.step()
    return watch


@sick("unshuffled-data")
def many_classes_in_order() -> sg.TrainingDebugger:
    """50 classes of 40 samples, batches of 64: a batch holds two or three neighbours."""
    centres = 2 * torch.randn(50, 16)
    y = torch.arange(2000) // 40
    model = mlp(16, 64, 50)
    x = centres[y] + torch.randn(2000, 16)
    return epochs(model, torch.optim.Adam(model.parameters()), x, y, 3, batch=64)


@sick("unshuffled-data")
def targets_in_order() -> sg.TrainingDebugger:
    """A table sorted by the column that is to be predicted."""
    x, y = data.regression(960)
    y = 3 * x[:, :1] + 0.1 * y
    order = y[:, 0].argsort()
    model = mlp(10, 32, 1)
    return epochs(model, torch.optim.SGD(model.parameters(), lr=0.05), x[order], y[order], 8)


# -- duplicate-randomness ------------------------------------------------------------------------------------------


def worked(
    dataset: Dataset[tuple[Tensor, Tensor]], passes: int = 2, num_workers: int = 2, **options: object
) -> sg.TrainingDebugger:
    """Trains on what workers bring."""
    model = mlp(8, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader: DataLoader[tuple[Tensor, Tensor]] = DataLoader(dataset, batch_size=8, num_workers=num_workers, **options)  # type: ignore[arg-type]
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(passes):
            for xb, yb in loader:
                optimizer.zero_grad()
                F.mse_loss(model(xb), yb).backward()
                optimizer.step()
    return watch


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Reads its samples from the beginning, whoever asks."""

    def __init__(self) -> None:
        self.x = torch.randn(160, 8)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x in self.x:
            yield x, x[:1]


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Adds noise from a generator of its own."""

    def __init__(self) -> None:
        self.x = torch.randn(128, 8)
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return 128

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        noise = torch.from_numpy(self.rng.normal(size=8)).float()
        return self.x[at] + 0.1 * noise, self.x[at, :1]


class NoisyByGlobal(Noisy):
    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        return self.x[at] + 0.1 * torch.from_numpy(np.random.normal(size=8)).float(), self.x[at, :1]


@sick("duplicate-randomness")
def workers_read_the_same() -> sg.TrainingDebugger:
    return worked(Stream())


@sick("duplicate-randomness")
def workers_share_a_generator() -> sg.TrainingDebugger:
    return worked(Noisy(), shuffle=True)


@sick("duplicate-randomness")
def workers_get_one_seed() -> sg.TrainingDebugger:
    return worked(NoisyByGlobal(), shuffle=True, worker_init_fn=lambda _: np.random.seed(0))
