"""How many processors this run may use, how many threads it has at work, and whether it is held back."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any, ClassVar

import torch

from seismograd.memory.limits import folders_of
from seismograd.onlookers.onlooker import Onlooker
from seismograd.places import is_users, shown
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

EVERY = (0.5, 10.0)
"""Seconds between two looks, within which it is counted who was at work: of the first ones, and later."""

_FIRST = 4

CROWDED = 3
"""So many times as many threads as processors have to be set up before anything is counted."""

_AT_WORK = 0.25
"""A thread that has this part of its fair share of what the run uses is at work."""


class Processors(Onlooker):
    """Counts the threads of this process and its loader's workers that used a processor since the last look.

    Only where more of them are set up than there are processors, and seldom: reading a thread's time costs some
    microseconds. Those that only wait are not counted, however many there are.
    """

    topic: ClassVar[str] = "processors"

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._next, self._looks = 0.0, 0
        self._workers: list[int] = []
        self._before: tuple[float, dict[int, float], tuple[int, int] | None] | None = None
        self._told: dict[str, Any] | None = None

    def data_came(self, batch: Any, loader: Any) -> None:
        workers = getattr(loader, "_workers", None)
        if workers and len(workers) != len(self._workers):
            self._workers = [worker.pid for worker in workers if worker.pid is not None]

    def look(self, pack: Pack, step: int) -> None:
        now = perf_counter()
        if now < self._next:
            return
        threads, ranks, paid = torch.get_num_threads(), _ranks(), quota()
        set_up, allowed = threads * ranks + len(self._workers), _within(paid)
        if set_up < CROWDED * allowed and (paid is None or set_up <= paid):
            self._before, self._next = None, now + EVERY[1]
            return
        self._next = now + EVERY[self._looks >= _FIRST]
        self._looks += 1
        times, throttled = _times(self._workers), throttling()
        before, self._before = self._before, (now, times, throttled)
        if before is None:
            return
        seconds = now - before[0]
        used = [times[each] - before[1].get(each, times[each]) for each in times]
        self._told = {
            "allowed": allowed,
            "machine": os.cpu_count() or 1,
            "quota": paid,
            "threads": threads,
            "ranks": ranks,
            "workers": len(self._workers),
            "at_work": at_work(used),
            "busy": sum(used) / seconds,
            "throttled": _share(before[2], throttled),
            "line": _line("num_workers" if len(self._workers) > threads else "set_num_threads("),
        }

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        told, self._told = self._told, None
        return told

    def restart(self) -> None:
        self._before = None


def at_work(used: Iterable[float]) -> int:
    """How many share the time that was used so that each has a part of its fair share: not those that only wait."""
    ordered = sorted(used, reverse=True)
    whole = sum(ordered)
    enough = (number for number, one in enumerate(ordered, 1) if 0 < one >= _AT_WORK * whole / number)
    return max(enough, default=0)


def _times(workers: Iterable[int]) -> dict[int, float]:
    """The seconds of processor that each thread of ours and each worker has had, by their ids."""
    found: dict[int, float] = {}
    with suppress(OSError, AttributeError, ValueError):
        for thread in os.listdir("/proc/self/task"):
            found[int(thread)] = _seconds(Path(f"/proc/self/task/{thread}"))
        for pid in workers:
            found[-pid] = _ticks(Path(f"/proc/{pid}"))
    return found


def _seconds(thread: Path) -> float:
    """What a thread has had, to the nanosecond where the kernel tells it: several on one processor have few ticks."""
    try:
        return int((thread / "schedstat").read_bytes().split()[0]) / 1e9
    except (OSError, IndexError):
        return _ticks(thread)


def _ticks(task: Path) -> float:
    """User and system time, by a file whose second field, a name in parentheses, may hold anything."""
    try:
        fields = (task / "stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):  # it is over
        return 0.0


def _line(words: str) -> dict[str, Any] | None:
    """The line of the user's that sets it, if one of the files at work says these words."""
    frame: FrameType | None = sys._getframe(1)
    seen: set[str] = set()
    while frame is not None:
        name = frame.f_code.co_filename
        if name not in seen and is_users(name):
            seen.add(name)
            for number, text in enumerate(linecache.getlines(name), 1):
                if words in text.partition("#")[0]:
                    return {"file": shown(name), "line": number, "code": text.strip()}
        frame = frame.f_back
    return None


def _ranks() -> int:
    """The processes of this run on this machine, as their launcher says it."""
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
    except ValueError:
        return 1


def allowed_processors() -> int:
    """The processors that this process may use: those it may run on, and no more than its quota pays for."""
    return _within(quota())


def _within(paid: float | None) -> int:
    try:
        allowed = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        allowed = os.cpu_count() or 1
    return allowed if paid is None else max(1, min(allowed, round(paid + 0.49)))


@cache
def _folders() -> tuple[Path, ...]:
    return tuple(folders_of("cpu"))


def quota() -> float | None:
    """The processors that the cgroup pays for; `None` where it sets no limit."""
    least: float | None = None
    for folder in _folders():
        with suppress(OSError, ValueError, ZeroDivisionError):
            if (folder / "cpu.max").is_file():
                most, period = (folder / "cpu.max").read_text().split()
            else:
                most = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
            if most != "max" and int(most) > 0:
                paid = int(most) / int(period)
                least = paid if least is None else min(least, paid)
    return least


def throttling() -> tuple[int, int] | None:
    """How many periods of the innermost quota there were, and in how many of them the group had to stop."""
    for folder in _folders():
        with suppress(OSError, ValueError, KeyError):
            lines = (line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            told = {name: int(value) for name, value in lines}
            return told["nr_periods"], told["nr_throttled"]
    return None


def _share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[0] <= before[0]:
        return None
    return (after[1] - before[1]) / (after[0] - before[0])
