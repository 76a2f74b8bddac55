"""The process's memory, and its accelerator's."""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar

from seismograd.memory import accelerator, snapshots
from seismograd.probes.pack import Pack


class Memory:
    """Reads what is resident, and what the accelerator's allocator holds; on sampled steps also after each phase."""

    name: ClassVar[str] = "memory"

    def __init__(self, every: float = 0.005) -> None:
        self._every = every
        self._next = 0.0
        self._on_accelerator = accelerator.is_there()
        self._phases: dict[str, float] = {}

    def read(self, pack: Pack) -> None:
        if self._phases:
            pack.host.update(self._phases)
            self._phases.clear()
        now = perf_counter()
        if now < self._next:
            return
        self._next = now + self._every
        whole, shared = snapshots.resident()
        pack.host["memory/rss"] = float(whole)
        pack.host["memory/own"] = float(whole - shared)
        if self._on_accelerator:
            pack.host["memory/allocated"] = float(accelerator.allocated())
            pack.host["memory/reserved"] = float(accelerator.reserved())
            pack.host["memory/peak"] = float(accelerator.peak())

    def after(self, phase: str) -> None:
        """Notes what is held now that a phase (`forward`, `backward`, `step`) is over."""
        held = accelerator.allocated() if self._on_accelerator else snapshots.rss()
        self._phases[f"memory/after_{phase}"] = float(held)

    def close(self) -> None: ...
