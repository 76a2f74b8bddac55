"""The process's memory, at most once a second."""

from __future__ import annotations

from time import perf_counter
from typing import Any, ClassVar

import psutil
import torch

from seismograd.probes.pack import Pack


class Memory:
    """Reads the resident set size, and what the accelerator's allocator holds."""

    name: ClassVar[str] = "memory"

    def __init__(self, every: float = 1.0) -> None:
        self._every = every
        self._next = 0.0
        self._process = psutil.Process()
        accelerator: Any = getattr(torch, "accelerator", None)  # since torch 2.6
        there = accelerator is not None and accelerator.is_available()
        self._allocated = getattr(accelerator, "memory_allocated", None) if there else None

    def read(self, pack: Pack) -> None:
        now = perf_counter()
        if now < self._next:
            return
        self._next = now + self._every
        pack.host["memory/rss"] = float(self._process.memory_info().rss)
        if self._allocated is not None:
            pack.host["memory/allocated"] = float(self._allocated())

    def close(self) -> None: ...
