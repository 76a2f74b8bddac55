"""Small models, data and a watch whose readings can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.sinks import Memory


class Watching:
    """A strict watch and what it read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.memory = Memory(limit=10_000)
        kwargs.setdefault("strict", True)
        self.watch = sg.watch(*args, sinks=[self.memory], **kwargs)

    @property
    def readings(self) -> list[sg.Reading]:
        return [reading for reading in self.memory.readings if not reading.facts]

    def series(self, name: str) -> list[float]:
        return self.memory.series(name)[1]


@pytest.fixture
def watching() -> Iterator[Callable[..., Watching]]:
    opened: list[Watching] = []

    def start(*args: Any, **kwargs: Any) -> Watching:
        opened.append(Watching(*args, **kwargs))
        return opened[-1]

    yield start
    for one in opened:
        one.watch.close()


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=generator)
    return x, (x[:, 0] > 0).long()


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
