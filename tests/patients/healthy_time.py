"""Healthy: data that comes in time, or late for a reason; steps that differ as steps do."""

from __future__ import annotations

import gc
import io
import random
from collections.abc import Iterator
from time import sleep
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import seismograd as sg
from patients.healthy_basics import mlp
from patients.register import healthy
from patients.sick_time import Points, Recurrent, Sample, epochs, trained


class Steady(nn.Module):
    """A model whose forward takes its time, as a large one does."""

    def __init__(self, seconds: float = 0.02) -> None:
        super().__init__()
        self.inner, self.seconds = mlp(8, 32, 2), seconds

    def forward(self, x: Tensor) -> Tensor:
        sleep(self.seconds)
        out: Tensor = self.inner(x)
        return out


@healthy()
def small_data_in_memory() -> sg.TrainingDebugger:
    """Collating takes most of a step that takes a millisecond: nobody waits."""
    points = Points(512)
    return trained(epochs(DataLoader(TensorDataset(points.x, points.y), batch_size=64, shuffle=True), 12))


@healthy()
def a_fifth_of_the_step_is_data() -> sg.TrainingDebugger:
    return trained(DataLoader(Points(320, reading=0.0006), batch_size=8, shuffle=True), model=Steady())


@healthy()
def workers_that_keep_up() -> sg.TrainingDebugger:
    return trained(DataLoader(Points(320, reading=0.002), batch_size=8, num_workers=2), model=Steady(0.03))


@healthy()
def workers_that_start_anew_each_epoch() -> sg.TrainingDebugger:
    return trained(epochs(DataLoader(Points(80), batch_size=8, num_workers=2), 4))


class Cached(Dataset[Sample]):
    """Reads slowly the first time, and remembers."""

    def __init__(self) -> None:
        self.points = Points(160, reading=0.004)
        self.cache: dict[int, Sample] = {}

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> Sample:
        if index not in self.cache:
            self.cache[index] = self.points[index]
        return self.cache[index]


@healthy()
def cache_that_fills_in_the_first_epoch() -> sg.TrainingDebugger:
    return trained(epochs(DataLoader(Cached(), batch_size=8, shuffle=True), 4))


@healthy()
def validation_reads_slowly() -> sg.TrainingDebugger:
    points = Points(128)
    slow = DataLoader(Points(32, reading=0.004), batch_size=8)

    def validate(step: int, model: nn.Module) -> None:
        if step % 8 == 7:
            model.eval()
            with torch.no_grad():
                for x, _ in slow:
                    model(x)
            model.train()

    return trained(epochs(DataLoader(TensorDataset(points.x, points.y), batch_size=16), 5), after=validate)


@healthy()
def lengths_that_vary() -> sg.TrainingDebugger:
    def batches() -> Iterator[Sample]:
        draw = random.Random(0)
        for _ in range(120):
            x = torch.randn(8, int(8 * draw.lognormvariate(0.0, 0.7)) + 1, 8)
            yield x, (x.mean((1, 2)) > 0).long()

    return trained(batches(), model=Recurrent())


@healthy()
def checkpoints_now_and_then() -> sg.TrainingDebugger:
    def save(step: int, model: nn.Module) -> None:
        if step % 20 == 19:
            torch.save(model.state_dict(), io.BytesIO())

    return trained(epochs(DataLoader(Points(320), batch_size=8), 3), after=save)


@healthy()
def garbage_collected_once_an_epoch() -> sg.TrainingDebugger:
    return trained(
        epochs(DataLoader(Points(256), batch_size=8), 4),
        after=lambda step, model: gc.collect() if step % 32 == 31 else None,
    )


@healthy()
def machine_with_other_things_to_do() -> sg.TrainingDebugger:
    """Now and then nothing happens for a while: another program has the CPU."""
    draw = random.Random(0)
    return trained(
        epochs(DataLoader(Points(160), batch_size=8), 5),
        after=lambda step, model: sleep(draw.choice([0.0] * 5 + [0.05])),
    )


@healthy()
def compiled_once_more_for_the_last_batch() -> sg.TrainingDebugger:
    torch._dynamo.reset()
    model: Any = torch.compile(mlp(8, 32, 2), backend="eager", dynamic=False)
    return trained(epochs(DataLoader(Points(100), batch_size=16), 5), model=model)


@healthy()
def environment_that_is_slow() -> sg.TrainingDebugger:
    """Data made in the loop: what takes long there is the user's to know."""

    def batches() -> Iterator[Sample]:
        for _ in range(60):
            sleep(0.015)
            x = torch.randn(16, 8)
            yield x, (x[:, 0] > 0).long()

    return trained(batches())
