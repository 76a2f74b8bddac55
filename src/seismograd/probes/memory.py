"""The process's memory, at most once a second."""

from __future__ import annotations

import os
from time import perf_counter
from typing import ClassVar

import psutil
import torch

from seismograd.probes.pack import Pack


class Memory:
    """Reads the resident set size, and what the accelerator's allocator holds."""

    name: ClassVar[str] = "memory"

    def __init__(self, every: float = 1.0) -> None:
        self._every = every
        self._next = 0.0
        self._pid = os.getpid()
        self._process = psutil.Process()

    def read(self, pack: Pack) -> None:
        now = perf_counter()
        if now < self._next:
            return
        self._next = now + self._every
        pack.host["memory/rss"] = float(self._process.memory_info().rss)
        if torch.accelerator.is_available() and hasattr(torch.accelerator, "memory_allocated"):
            pack.host["memory/allocated"] = float(torch.accelerator.memory_allocated())

    def close(self) -> None: ...
