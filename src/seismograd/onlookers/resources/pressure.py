"""How much of the memory that may be used is in use, at most once a second."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any, ClassVar

import torch

from seismograd.memory import accelerator, snapshots
from seismograd.memory.room import room
from seismograd.onlookers.onlooker import Onlooker
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

EVERY = 1.0
"""Seconds between two looks."""


class Pressure(Onlooker):
    """Reads what is left of the tightest limit, and on CUDA whether the allocator had to give back what it kept."""

    topic: ClassVar[str] = "pressure"

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._next = perf_counter()
        self._told: dict[str, Any] | None = None
        self._on_accelerator = accelerator.is_there()

    def look(self, pack: Pack, step: int) -> None:
        now = perf_counter()
        if now < self._next:
            return
        self._next = now + EVERY
        left = room()
        self._told = {
            "seconds": now,
            "limit": left.limit,
            "used": left.used,
            "left": left.left,
            "limit_of": left.of,
            "own": snapshots.rss(),
            "device": self._device() if self._on_accelerator else None,
        }

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        told, self._told = self._told, None
        return told

    def _device(self) -> dict[str, Any] | None:
        """CUDA's: retries are allocations for which everything that was kept ready had to be given back first."""
        if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return None
        stats = torch.cuda.memory_stats()
        whole = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        return {
            "limit": int(whole),
            "peak": int(stats.get("allocated_bytes.all.peak", 0)),
            "retries": int(stats.get("num_alloc_retries", 0)),
        }
