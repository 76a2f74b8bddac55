"""Whether this rank goes on: seen from another thread, by its steps and by the stack of the thread that trains."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from seismograd.places import is_users, shown

AFTER = 60.0
"""Seconds without progress after which a training counts as stuck, unless its steps are long."""
STEPS = 20.0
"""At least so many steps' time."""
FRAMES = 8
WORKING = 0.05
"""The share of a processor that a rank uses if it is at work."""

_COLLECTIVES = "distributed_c10d.py"
_ENGINE = "_engine_run_backward"
_PLACES = (
    (os.path.join("torch", "optim") + os.sep, "optimizer"),
    (os.path.join("torch", "utils", "data") + os.sep, "data"),
    (os.path.join("torch", "serialization.py"), "checkpoint"),
    (os.path.join("torch", "nn", "modules", "module.py"), "forward"),
)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a thread is: as plain values, the user's own frames innermost last."""

    phase: str
    collective: str | None
    waits: bool
    """Whether it waits for other ranks, as far as its stack tells."""
    stack: tuple[dict[str, Any], ...]
    mark: tuple[tuple[int, int], ...]
    """Alike as long as the thread stands at the same place."""


def standing(frame: FrameType | None) -> Standing:
    """What the thread with this frame is doing."""
    innermost, frames = frame, []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    collective: str | None = None
    phase = ""
    for each in frames:  # the innermost first
        name, function = each.f_code.co_filename, each.f_code.co_name
        if name.endswith(_COLLECTIVES) and not function.startswith("_"):
            collective = function  # the outermost of them is the one that was called
        elif not phase and collective is None:
            phase = "backward" if function == _ENGINE else next((what for place, what in _PLACES if place in name), "")
    in_engine = innermost is not None and innermost.f_code.co_name == _ENGINE
    if in_engine and collective is None:
        collective = "the all-reduce of gradients"
    if collective is not None and not in_engine:
        phase = "collective"
    users = [each for each in frames if is_users(each.f_code.co_filename)][:FRAMES]
    stack = tuple(
        {
            "file": shown(each.f_code.co_filename),
            "line": each.f_lineno,
            "function": each.f_code.co_name,
            "code": linecache.getline(each.f_code.co_filename, each.f_lineno).strip()[:120],
        }
        for each in reversed(users)
    )
    mark = tuple((id(each.f_code), each.f_lasti) for each in frames[:50])
    return Standing(phase or "rest", collective, collective is not None, stack, mark)


class Stalls:
    """Looked at now and then: for how long nothing has gone on, and where the training stands meanwhile.

    `progress` is whatever changes while it goes on; `thread` the one that trains.
    """

    def __init__(
        self,
        progress: Callable[[], object],
        thread: Callable[[], int],
        usual: Callable[[], float],
        after: float = AFTER,
    ) -> None:
        self._progress, self._thread, self._usual = progress, thread, usual
        self._after = after
        self._last: object = None
        self._since = self._moved = time.monotonic()
        self._mark: object = None
        self._spent, self._looked = 0.0, time.monotonic()
        self.at: Standing | None = None
        """Where it stands, once that was looked at."""

    @property
    def limit(self) -> float:
        return max(self._after, STEPS * self._usual())

    @property
    def usual(self) -> float:
        return self._usual()

    def look(self) -> float:
        """Seconds for which nothing has gone on."""
        now, progress = time.monotonic(), self._progress()
        if progress != self._last:
            self._last, self._since, self._moved, self.at = progress, now, now, None
            self._mark = None
            self._spent, self._looked = 0.0, 0.0
            return 0.0
        seconds = now - self._since
        if seconds > self.limit / 4:
            self._look_closer(now)
        return seconds

    def _look_closer(self, now: float) -> None:
        self.at = standing(sys._current_frames().get(self._thread()))
        spent = _work(self._thread())
        works = spent - self._spent > WORKING * (now - self._looked)
        self._spent, self._looked = spent, now
        if self.at.mark != self._mark or (works and not self.at.waits and not _has_accelerator()):
            self._mark, self._moved = self.at.mark, now

    @property
    def stuck(self) -> bool:
        """Whether it stands at one place, and does not work there."""
        now = time.monotonic()
        return self.at is not None and now - self._since >= self.limit and now - self._moved >= self.limit / 2


def _work(thread: int) -> float:
    """Seconds of processor time that a thread has used so far.

    As the system tells it of its number: `pthread_getcpuclockid` of a thread that has ended is a segmentation fault.
    """
    try:
        known = next(each for each in threading.enumerate() if each.ident == thread)
        fields = Path(f"/proc/self/task/{known.native_id}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):  # it is gone, or no system that tells: the process does
        return time.process_time()


def _has_accelerator() -> bool:
    """Whether there is one that the thread may wait for, with the processor spinning."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
