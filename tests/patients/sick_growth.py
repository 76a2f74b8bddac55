"""Sick: what is carried from step to step keeps its graph, memory runs out, or the processors are fought over."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import seismograd as sg
from patients import data
from patients.register import sick


class Meter:
    """As in many examples: what is added is not looked at."""

    def __init__(self) -> None:
        self.sum: Tensor | float = 0.0
        self.count = 0

    def update(self, value: Tensor, n: int) -> None:
        self.sum += value * n
        self.count += n


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase] = nn.GRU) -> None:
        super().__init__()
        self.rnn = kind(4, 16, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor, h: Tensor | tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        out, h = self.rnn(x, h)
        return self.head(out[:, -1]), h


def classifier() -> tuple[nn.Module, torch.optim.Optimizer, Tensor, Tensor]:
    x, y = data.blobs(400, 8, 2)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    return model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y


@sick("growing-graph")
def total_of_losses() -> sg.TrainingDebugger:
    """`total += loss`, to be printed at the end of the epoch."""
    model, optimizer, x, y = classifier()
    total: Tensor | float = 0.0
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss
    assert float(total.detach()) > 0
    return watch


@sick("growing-graph")
def smoothed_loss_with_its_graph() -> sg.TrainingDebugger:
    """An exponential mean of the loss for the progress bar, taken before backward."""
    model, optimizer, x, y = classifier()
    mean: Tensor | None = None
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            loss = F.cross_entropy(model(xb), yb)
            mean = loss if mean is None else 0.9 * mean + 0.1 * loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@sick("growing-graph")
def meter_of_tensors() -> sg.TrainingDebugger:
    """An AverageMeter is given the loss itself, and not its number."""
    model, optimizer, x, y = classifier()
    meter = Meter()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(loss, len(xb))
    return watch


@sick("growing-graph")
def hidden_state_not_detached() -> sg.TrainingDebugger:
    """The hidden state goes on from batch to batch: backward raises at the second step."""
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    hidden: Tensor | None = None
    with suppress(RuntimeError), sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(20):
            x = torch.randn(16, 5, 4)
            out, hidden = model(x, hidden)
            loss = F.cross_entropy(out, (x.sum((1, 2)) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@sick("growing-graph")
def hidden_state_with_a_retained_graph() -> sg.TrainingDebugger:
    """The error message's advice was followed: `retain_graph=True`. An LSTM's state is a pair."""
    model = Recurrent(nn.LSTM)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    state = None
    with suppress(RuntimeError), sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(20):
            x = torch.randn(16, 5, 4)
            out, state = model(x, state)
            loss = F.cross_entropy(out, (x.sum((1, 2)) > 0).long())
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
    return watch


@sick("growing-graph")
def sum_of_all_losses_so_far() -> sg.TrainingDebugger:
    """Backward is called on the sum of all losses since the beginning."""
    x, y = data.blobs(400, 8, 2)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses: list[Tensor] = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            losses.append(F.cross_entropy(model(xb), yb))
            optimizer.zero_grad()
            torch.stack(losses).sum().backward(retain_graph=True)
            optimizer.step()
    return watch


class Centred(nn.Module):
    """Keeps a running mean of its features, with their history."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 2)
        self.mean = torch.zeros(16)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.relu(self.first(x))
        self.mean = 0.9 * self.mean + 0.1 * features.mean(0)
        return self.last(features)


@sick("growing-graph")
def running_mean_with_its_graph() -> sg.TrainingDebugger:
    """A running mean that is only used in evaluation is kept as an attribute of the model."""
    x, y = data.blobs(400, 8, 2)
    model = Centred()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


class Pairs(nn.Module):
    """Compares every feature of every sample with every other."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 1 << 12)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).flatten()
        return (h.unsqueeze(0) * h.unsqueeze(1)).mean() if len(x) < 2 else torch.cartesian_prod(h, h, h).mean()


@sick("memory-pressure")
def all_triples_of_a_batch() -> sg.TrainingDebugger:
    """What was tried with one sample asks for a million times as much with a batch."""
    model = Pairs()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with suppress(RuntimeError), sg.watch(model, optimizer, sinks=[]) as watch:
        for size in (1, 1, 16):
            optimizer.zero_grad()
            model(torch.randn(size, 8)).backward()
            optimizer.step()
    return watch


@sick("memory-pressure")
def table_of_distances() -> sg.TrainingDebugger:
    """The loop evaluates with NumPy: a table of all pairs of ten million points."""
    model, optimizer, x, y = classifier()
    with suppress(MemoryError), sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 10):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        np.zeros((10_000_000, 10_000_000))
    return watch


class Slow(torch.utils.data.Dataset[Tensor]):
    """Takes its time with every sample, on the processor."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, at: int) -> Tensor:
        generator = torch.Generator().manual_seed(at)
        return torch.randn(300, 300, generator=generator).matrix_power(12)[0, :8].tanh()


PATIENCE = 20.0
"""Seconds for a few looks, half a second apart: enough of them also where the machine has more to do."""


def is_crowded(watch: sg.TrainingDebugger) -> bool:
    return any(finding.id == "cpu-pressure" for finding in watch.findings)


@contextmanager
def one_processor() -> Iterator[None]:
    """As in a container that pays for one."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@sick("cpu-pressure")
def many_threads_on_one_processor() -> sg.TrainingDebugger:
    """As many threads as the machine has processors, of which the run may use one."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = torch.randn(1024, 256)
    with one_processor(), sg.watch(model, optimizer, sinks=[]) as watch:
        torch.set_num_threads(16)
        began = perf_counter()
        while not is_crowded(watch) and perf_counter() - began < PATIENCE:
            optimizer.zero_grad()
            F.mse_loss(model(x), x).backward()
            optimizer.step()
    return watch


@sick("cpu-pressure")
def many_workers_on_one_processor() -> sg.TrainingDebugger:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with one_processor(), warnings.catch_warnings(), sg.watch(model, optimizer, sinks=[]) as watch:
        warnings.simplefilter("ignore")  # torch counts the workers, too
        began = perf_counter()
        for x in DataLoader(Slow(), batch_size=4, num_workers=7):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if is_crowded(watch) or perf_counter() - began > PATIENCE:
                break
    return watch
