"""What the process holds at a moment, and what changed between two."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from seismograd.amounts import size
from seismograd.memory import accelerator
from seismograd.memory.limits import limit, machine, tightest, used

__all__ = [
    "compare",
    "limit",
    "machine",
    "own",
    "own_of",
    "percent",
    "resident",
    "rss",
    "snapshot",
    "used",
    "uss",
]

_BYTES = ("rss", "uss", "cuda_allocated", "cuda_reserved", "cuda_peak")
_NAMES = {
    "rss": "resident memory",
    "uss": "memory of its own",
    "cuda_allocated": "the accelerator's tensors",
    "cuda_reserved": "what the accelerator's allocator holds",
    "cuda_peak": "the accelerator's peak",
}


def snapshot(label: str = "") -> dict[str, Any]:
    """What this process and its accelerator hold now, as strict JSON.

    `rss` and `uss` in bytes (`None` where the system does not say), `limit` in bytes and `cpu_memory_percent` as in
    `limits`, `cuda_allocated`, `cuda_reserved` and `cuda_peak` in bytes over all devices, 0 without any.
    """
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "label": label,
        "rss": rss(),
        "uss": uss(),
        "limit": limit(),
        "cpu_memory_percent": percent(),
        "cuda_allocated": accelerator.allocated(),
        "cuda_reserved": accelerator.reserved(),
        "cuda_peak": accelerator.peak(),
    }


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What changed between two snapshots: bytes by key, the seconds between them, and `words`, which says it."""
    changes: dict[str, int | None] = {}
    for name in _BYTES:
        old, new = before.get(name), after.get(name)
        changes[name] = None if old is None or new is None else int(new) - int(old)
    old_share, new_share = before.get("cpu_memory_percent"), after.get("cpu_memory_percent")
    seconds = _seconds(before, after)
    return {
        "from": before.get("label", ""),
        "to": after.get("label", ""),
        "seconds": seconds,
        **changes,
        "cpu_memory_percent": None if old_share is None or new_share is None else round(new_share - old_share, 2),
        "words": _words(changes, seconds),
    }


def percent() -> float:
    """How much of what this process may use is in use, by whomever: above 0, at most 100."""
    least, group = tightest()
    if group is None:
        return _within(psutil.virtual_memory().percent)
    working = group.working_set()
    return _within(100.0 * (used() if working is None else working) / least)


def _within(share: float) -> float:
    return min(100.0, max(0.01, round(float(share), 2)))


def _asks() -> Callable[[], tuple[int, int]]:
    """The cheapest way to ask for the resident set size, and for the part of it that belongs to files or is shared."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        int(Path("/proc/self/statm").read_bytes().split()[2])
    except (OSError, ValueError, IndexError, AttributeError):
        return _from_psutil

    def from_statm() -> tuple[int, int]:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            pages = file.read(128).split()
        return int(pages[1]) * page, int(pages[2]) * page

    return from_statm


def _from_psutil() -> tuple[int, int]:
    memory = psutil.Process().memory_info()
    return int(memory.rss), int(getattr(memory, "shared", 0))


resident = _asks()
"""The bytes of this process that are in memory, and those of them that are of mapped files or shared memory."""


def rss() -> int:
    """The bytes of this process that are in memory."""
    return resident()[0]


def own() -> int:
    """As `rss`, without mapped files and shared memory: what was allocated. Microseconds, unlike `uss`."""
    whole, shared = resident()
    return whole - shared


def own_of(pid: int) -> int | None:
    """As `own`, of another process of this user's; `None` where it is gone, or the system does not say."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()
        return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def uss() -> int | None:
    """The bytes that only this process holds: what would be free without it. A millisecond or so; `None` if unknown."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
    except (OSError, ValueError, IndexError):
        pass
    try:
        return int(psutil.Process().memory_full_info().uss)
    except (psutil.Error, AttributeError, OSError, NotImplementedError):
        return None


def _seconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    try:
        began, ended = (datetime.fromisoformat(str(each["timestamp"])) for each in (before, after))
        return (ended - began).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None


def _words(changes: Mapping[str, int | None], seconds: float | None) -> str:
    told = [
        f"{_NAMES[name]} {'rose' if change > 0 else 'fell'} by {size(abs(change))}"
        for name, change in changes.items()
        if change
    ]
    when = "" if seconds is None else f" in {seconds:.3g} s"
    if not told:
        return f"no change{when}"
    return ", ".join(told[:-1]) + (" and " if told[:-1] else "") + told[-1] + when
