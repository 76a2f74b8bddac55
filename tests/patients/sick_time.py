"""Sick: the loop waits for its data, or some steps take far longer than the others. Naps stand for slow work."""

from __future__ import annotations

import gc
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset

import seismograd as sg
from patients.healthy_basics import mlp
from patients.register import sick

Sample = tuple[Tensor, Tensor]


class Points(Dataset[Sample]):
    """Points in the plane and the side of a line that they lie on; naps where it is told to."""

    def __init__(self, count: int = 240, *, reading: float = 0.0, making: float = 0.0) -> None:
        self.x = torch.randn(count, 8)
        self.y = (self.x[:, 0] + self.x[:, 1] > 0).long()
        self.reading, self.making = reading, making

    def __len__(self) -> int:
        return len(self.x)

    def read_sample(self, index: int) -> Tensor:
        sleep(self.reading)
        return self.x[index]

    def augment(self, x: Tensor) -> Tensor:
        sleep(self.making)
        return x + 0.01 * torch.randn(8)

    def __getitem__(self, index: int) -> Sample:
        return self.augment(self.read_sample(index)), self.y[index]


def trained(
    batches: Iterable[Any],
    *,
    after: Callable[[int, nn.Module], object] = lambda step, model: None,
    model: nn.Module | None = None,
) -> sg.TrainingDebugger:
    """A plain loop over batches, with `after(step, model)` after each step."""
    model = mlp(8, 32, 2) if model is None else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            after(step, model)
    return watch


def epochs(loader: Iterable[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        yield from loader


# -- data-starvation -----------------------------------------------------------------------------------------------


@sick("data-starvation")
def every_sample_is_read_slowly() -> sg.TrainingDebugger:
    return trained(DataLoader(Points(reading=0.003), batch_size=8, shuffle=True))


@sick("data-starvation")
def every_sample_is_augmented_slowly() -> sg.TrainingDebugger:
    return trained(DataLoader(Points(making=0.003), batch_size=8, shuffle=True))


@sick("data-starvation")
def batches_are_collated_slowly() -> sg.TrainingDebugger:
    def collate(samples: list[Sample]) -> Any:
        sleep(0.025)
        return torch.utils.data.default_collate(samples)

    return trained(DataLoader(Points(320), batch_size=8, shuffle=True, collate_fn=collate))


@sick("data-starvation")
def one_worker_is_not_enough() -> sg.TrainingDebugger:
    return trained(DataLoader(Points(320, reading=0.004), batch_size=8, shuffle=True, num_workers=1))


class Lines(IterableDataset[Sample]):
    """A stream that comes over a slow line."""

    def __iter__(self) -> Iterator[Sample]:
        for _ in range(320):
            sleep(0.003)
            x = torch.randn(8)
            yield x, (x[0] > 0).long()


@sick("data-starvation")
def stream_over_a_slow_line() -> sg.TrainingDebugger:
    return trained(DataLoader(Lines(), batch_size=8))


class Files(Dataset[Sample]):
    """Each sample lies in a compressed file of its own."""

    def __init__(self, folder: str, count: int = 24) -> None:
        self.paths = [Path(folder) / f"{number}.npz" for number in range(count)]
        random = np.random.default_rng(0)
        for path in self.paths:
            np.savez_compressed(path, x=random.standard_normal(120_000).astype("f4"))

    def __len__(self) -> int:
        return 10 * len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        x = torch.from_numpy(np.load(self.paths[index % len(self.paths)])["x"][:8])
        return x, (x[0] > 0).long()


@sick("data-starvation", slow=True)
def files_unpacked_sample_by_sample() -> sg.TrainingDebugger:
    with tempfile.TemporaryDirectory() as folder:
        return trained(DataLoader(Files(folder), batch_size=6, shuffle=True))


# -- slow-step -----------------------------------------------------------------------------------------------------


@sick("slow-step")
def garbage_collected_at_every_third_step() -> sg.TrainingDebugger:
    gc.unfreeze()  # all that is in the process is walked over, as it is in a script
    return trained(
        epochs(DataLoader(Points(64), batch_size=8), 4),
        after=lambda step, model: gc.collect() if step % 3 == 0 else None,
    )


@sick("slow-step")
def compiled_again_for_every_length() -> sg.TrainingDebugger:
    torch._dynamo.reset()
    inner = mlp(8, 32, 2)
    model: Any = torch.compile(inner, backend="eager", dynamic=False)

    def batches() -> Iterator[Sample]:
        for step in range(40):
            x = torch.randn(16 + step % 7, 8)
            yield x, (x[:, 0] > 0).long()

    return trained(batches(), model=model)


class Recurrent(nn.Module):
    """A GRU and a head on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.GRU(8, 32, batch_first=True), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x)[0][:, -1])
        return out


@sick("slow-step")
def a_few_sequences_are_far_longer() -> sg.TrainingDebugger:
    """One of twelve is eighty times as long: most of the time goes into those."""

    def batches() -> Iterator[Sample]:
        for step in range(72):
            x = torch.randn(8, 800 if step % 12 == 11 else 10, 8)
            yield x, (x.mean((1, 2)) > 0).long()

    return trained(batches(), model=Recurrent())


@sick("slow-step")
def checkpoint_after_every_step() -> sg.TrainingDebugger:
    class Slowly(io.BytesIO):
        def write(self, data: Any) -> int:
            sleep(0.0005)
            return super().write(data)

    return trained(
        epochs(DataLoader(Points(160), batch_size=8), 2),
        after=lambda step, model: torch.save(model.state_dict(), Slowly()),
    )
