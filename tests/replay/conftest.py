"""A watch that replays, and where in a test's own file its fault lies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import seismograd as sg
from seismograd.sinks import Memory


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """What another test has compiled in this process keeps no step from being traced."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        dynamo.counters.clear()


class Watching:
    """A strict watch and what it found."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.memory = Memory(limit=10_000)
        kwargs.setdefault("strict", True)
        self.watch = sg.watch(*args, sinks=[self.memory], **kwargs)

    @property
    def recorder(self) -> Any:
        replayer = self.watch._loop._replayer
        return None if replayer is None else replayer.recorder

    @property
    def calls(self) -> list[Any]:
        return list(self.recorder.step.calls)

    @property
    def glues(self) -> list[Any]:
        return list(self.recorder.step.glues)

    @property
    def readings(self) -> list[sg.Reading]:
        return list(self.memory.readings)

    @property
    def origins(self) -> list[sg.Finding]:
        """The findings that a second run explains."""
        self.watch.flush()
        return [finding for finding in self.watch.findings if "origin" in finding.evidence]

    @property
    def origin(self) -> sg.Finding:
        found = self.origins
        assert len(found) == 1, [(one.id, one.message) for one in self.watch.findings]
        return found[0]

    @property
    def notes(self) -> list[str]:
        """Why nothing could be found out."""
        self.watch.flush()
        return [one.evidence["note"] for one in self.watch.findings if "note" in one.evidence]


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
def diagnose(watching: Callable[..., Watching]) -> Callable[..., sg.Finding]:
    """Trains on each of the batches, and returns the one finding that has an origin."""

    def run(model: nn.Module, loss_of: Callable[[Any], Tensor], batches: Iterable[Any], **kwargs: Any) -> sg.Finding:
        optimizer = SGD(model.parameters(), lr=0.01)
        run = watching(model, optimizer, **kwargs)
        for batch in batches:
            optimizer.zero_grad()
            loss_of(batch).backward()
            optimizer.step()
        return run.origin

    return run


@pytest.fixture
def line(request: pytest.FixtureRequest) -> Callable[[str], int]:
    """The line of the test's own file that ends in `# <- mark`."""
    lines = Path(request.path).read_text(encoding="utf-8").splitlines()

    def find(mark: str) -> int:
        found = [at for at, text in enumerate(lines, 1) if text.endswith(f"# <- {mark}")]
        assert len(found) == 1, (mark, found)
        return found[0]

    return find


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
