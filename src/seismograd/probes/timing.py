"""Where the time of a step goes: data, forward, backward, optimizer, the rest, and the watch itself."""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar

from seismograd.probes.pack import Pack


class Timing:
    """Adds up the phases between two readings. On an accelerator these are the host's times."""

    name: ClassVar[str] = "timing"

    def __init__(self) -> None:
        self.data = self.forward = self.backward = self.optimizer = 0.0
        self.own = 0.0
        """Seconds that the watch itself took since the last reading."""
        self._began = perf_counter()

    def restart(self) -> None:
        """Forgets what was added up: nobody looked for a while."""
        self.data = self.forward = self.backward = self.optimizer = self.own = 0.0
        self._began = perf_counter()

    def read(self, pack: Pack) -> None:
        now = perf_counter()
        host, whole = pack.host, now - self._began
        host["time/step"] = whole
        if self.data:
            host["time/data"] = self.data
        if self.forward:
            host["time/forward"] = self.forward
        host["time/backward"] = self.backward
        if self.optimizer:
            host["time/optimizer"] = self.optimizer
        host["time/rest"] = max(0.0, whole - self.data - self.forward - self.backward - self.optimizer - self.own)
        self.data = self.forward = self.backward = self.optimizer = self.own = 0.0
        self._began = now

    def close(self) -> None: ...
