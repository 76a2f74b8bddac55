"""What `seismograd run` would see of this process, without another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seismograd.records import Severity
from seismograd.run.scout import Scout
from seismograd.sinks import Memory
from seismograd.training import TrainingDebugger


class Scouted:
    """What `seismograd run` would have seen of this process."""

    def __init__(self) -> None:
        self.memories: list[Memory] = []
        self.runs: list[TrainingDebugger] = []

    def new_run(self) -> TrainingDebugger:
        self.memories.append(Memory(limit=10_000))
        self.runs.append(TrainingDebugger(sinks=[self.memories[-1]], strict=True))
        return self.runs[-1]

    def series(self, name: str) -> list[float]:
        return self.memories[0].series(name)[1]

    @property
    def alarms(self) -> list[str]:
        """What was found that is more than worth knowing."""
        return [f.id for run in self.runs for f in run.findings if f.severity is not Severity.INFO]

    @property
    def steps(self) -> list[int]:
        """How many steps each training has taken."""
        return [run.report()["run"]["steps"] for run in self.runs]

    @property
    def findings(self) -> dict[str, Any]:
        return {finding.id: finding for run in self.runs for finding in run.findings}


@contextmanager
def scouted() -> Iterator[Scouted]:
    seen = Scouted()
    scout = Scout(seen.new_run, fail=_raise, stop_if_wanted=lambda: None)
    try:
        yield seen
    finally:
        scout.close()


def _raise(part: str, error: Exception) -> None:
    raise AssertionError(part) from error
