"""Where the time of a step goes: data, forward, backward, optimizer, the rest, and the watch itself."""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar

from seismograd.probes.pack import Pack

PHASES = ("data", "forward", "backward", "optimizer")


class Timing:
    """Adds up the phases between two readings. On an accelerator these are the host's times."""

    name: ClassVar[str] = "timing"

    def __init__(self) -> None:
        self._spent = dict.fromkeys(PHASES, 0.0)
        self._began = perf_counter()
        self.own = 0.0
        """Seconds that the watch itself took since the last reading."""

    def spend(self, phase: str, seconds: float) -> None:
        self._spent[phase] += seconds

    def read(self, pack: Pack) -> None:
        now = perf_counter()
        step = now - self._began
        host, rest = pack.host, step - self.own
        host["time/step"] = step
        for phase, seconds in self._spent.items():
            if seconds:
                host[f"time/{phase}"] = seconds
                rest -= seconds
                self._spent[phase] = 0.0
        host["time/rest"] = max(0.0, rest)
        self._began, self.own = now, 0.0

    def close(self) -> None: ...
