"""A scout in this process, and the runs that it makes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seismograd.run.scout import Scout
from seismograd.sinks import Memory
from seismograd.training import TrainingDebugger


class Scouting:
    """A scout whose errors are raised, and what was read of each training it met."""

    def __init__(self) -> None:
        self.memories: list[Memory] = []
        self.scout = Scout(self._new_run, fail=_raise, stop_if_wanted=lambda: None)

    def _new_run(self) -> TrainingDebugger:
        self.memories.append(Memory(limit=10_000))
        return TrainingDebugger(sinks=[self.memories[-1]], strict=True, budget=1.0)  # every step, on a busy machine too

    @property
    def steps(self) -> list[int]:
        """How many steps each training has taken."""
        return [(each.step if each.loop is None else each.loop.step) + 1 for each in self.scout.trainings]

    def series(self, name: str, run: int = 0) -> list[float]:
        return self.memories[run].series(name)[1]


def _raise(part: str, error: Exception) -> None:
    raise AssertionError(part) from error


@pytest.fixture
def scouting() -> Iterator[Scouting]:
    made = Scouting()
    yield made
    made.scout.close()
