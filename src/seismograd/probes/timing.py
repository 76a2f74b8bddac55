"""Where the time of a step goes: data, forward, backward, optimizer, what lies between steps, the watch itself."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from time import perf_counter, thread_time
from typing import Any, ClassVar

from seismograd.own_threads import in_one
from seismograd.places import Spot, nearest
from seismograd.probes.pack import Pack

PHASES = (
    *("data", "forward", "backward", "optimizer"),
    *("evaluation", "checkpoint", "logging", "collective", "rest", "watch"),
)
"""At every moment exactly one of these goes on, so that they add up to the step."""

_NAMES = {name: f"time/{name}" for name in ("step", *PHASES, "stalled", "gc")}
_ALWAYS = frozenset({"backward", "rest", "watch"})
_LONG_WAIT = 0.003
"""From here on it is asked, for a wait, how long the thread stood in line for a processor."""

_AWAY = frozenset({"data", "checkpoint", "collective"})
"""Phases in which a thread may well wait: what it waits there is no stall."""


class Timing:
    """A stopwatch with a hand for each phase, set back at each step, read or not. The clock is the host's.

    A phase that begins inside another one (the forward of a closure, inside the optimizer) has its time for itself. The
    wait for a batch that is only evaluated belongs to the evaluation.
    """

    name: ClassVar[str] = "timing"

    def __init__(self) -> None:
        self._known = set(_ALWAYS)
        self._collector = Collector(lambda: self._ours)
        self.last: Mapping[str, float] = {}
        """The phases of the newest reading, in seconds, without the `time/`. `in_line`: how much of long waits for data
        was one for a processor that others had."""
        self.restart()

    def restart(self) -> None:
        """Forgets what was added up: nobody looked for a while."""
        self._phase, self._ours = "rest", False
        self._before: list[str] = []
        self._fetched, self._looked = 0.0, False
        self._asks = False
        self._began = self._since = self._ours_began = perf_counter()
        self._clear(thread_time())

    def _clear(self, cpu: float) -> None:
        self._spent = dict.fromkeys(PHASES, 0.0)
        self._cpu_began, self._cpu_away = cpu, 0.0
        self._delay = 0.0
        self._collector.take()

    def skip(self, seconds: float) -> None:
        """So much time passed that is not to count."""
        self._began += seconds
        self._since += seconds

    # -- what goes on --------------------------------------------------------------------------------------------

    def begin(self, phase: str) -> None:
        self._charge("watch" if self._ours else self._phase)
        if phase == "data":
            self._settle_fetched()
            if self._asks:
                self._delay -= time_in_line()
        elif phase == "forward":
            self._fetched, self._looked = 0.0, False
        elif phase == "evaluation":
            self._looked = True
        if phase in _AWAY:
            self._cpu_away -= thread_time()
        self._before.append(self._phase)
        self._phase = phase

    def end(self, phase: str) -> None:
        """The phase is over, and whatever began inside it and did not say when it ended."""
        if phase != self._phase and phase not in self._before:
            return
        spent = self._charge("watch" if self._ours else self._phase)
        while True:
            over, self._phase = self._phase, self._before.pop()
            if over in _AWAY:
                self._cpu_away += thread_time()
            if over == phase:
                break
        if phase == "data":
            self._fetched += spent
            if self._asks:
                self._delay += time_in_line()
            self._asks = spent >= _LONG_WAIT

    def ours_begins(self) -> None:
        """From here on it is the watch that works: what begins or ends meanwhile does so when it is through."""
        self._charge(self._phase)
        self._ours, self._ours_began = True, self._since

    def ours_ended(self) -> float:
        """How long it worked."""
        self._ours = False
        self._charge("watch")
        return self._since - self._ours_began

    def _charge(self, phase: str) -> float:
        now = perf_counter()
        spent = now - self._since
        self._spent[phase] += spent
        self._since = now
        return spent

    def _settle_fetched(self) -> None:
        """What was fetched last and only evaluated was waited for by the evaluation."""
        if self._looked:
            moved = min(self._fetched, self._spent["data"])
            self._spent["data"] -= moved
            self._spent["evaluation"] += moved
        self._fetched, self._looked = 0.0, False

    # -- the reading ---------------------------------------------------------------------------------------------

    def read(self, pack: Pack) -> None:
        self._charge("watch" if self._ours else self._phase)
        self._settle_fetched()
        spent, known = self._spent, self._known
        whole = self._since - self._began
        last, host = {"step": whole}, pack.host
        for phase, seconds in spent.items():
            if seconds or phase in known:
                known.add(phase)
                last[phase] = seconds
        now = thread_time()
        cpu = now - self._cpu_began
        if cpu >= 0 and self._phase == "rest":  # else the thread is another one, or in the middle of something
            present = whole - spent["data"] - spent["checkpoint"] - spent["collective"]
            idle = present - max(0.0, cpu - self._cpu_away)
            last["stalled"] = min(max(0.0, idle), present - spent["watch"])
        last["gc"] = self._collector.seconds
        self.last = {**last, "in_line": max(0.0, self._delay)} if self._delay else last
        for phase, seconds in last.items():
            host[_NAMES[phase]] = seconds
        self._began = self._since
        self._clear(now)

    def pass_over(self) -> None:
        """The step is not read: its time is nobody's, so that the next reading tells the time of one step too."""
        self._charge("watch" if self._ours else self._phase)
        self._settle_fetched()
        self._began = self._since
        self._clear(thread_time())

    @property
    def collected_at(self) -> Spot | None:
        """The user's line that the longest full garbage collection so far was started from."""
        return self._collector.spot

    def close(self) -> None:
        self._collector.close()


def time_in_line() -> float:
    """Seconds, in all, for which this thread could have run and others had the processors; 0 where nobody counts."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Collector:
    """Adds up the seconds that Python's garbage collection takes, but for those in which the watch is at work.

    A thread of ours that imports a tracker's package makes many objects, and a collection comes of it there.
    """

    def __init__(self, ours: Callable[[], bool]) -> None:
        self._ours = ours
        self.seconds = 0.0
        self.spot: Spot | None = None
        self._longest = self._began = 0.0
        gc.callbacks.append(self._heard)

    def take(self) -> None:
        self.seconds = 0.0

    def _heard(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "start":
            self._began = 0.0 if self._ours() or in_one() else perf_counter()
            return
        if not self._began:
            return
        seconds, self._began = perf_counter() - self._began, 0.0
        self.seconds += seconds
        if info["generation"] == 2 and seconds > self._longest:
            self._longest = seconds
            self.spot = nearest(sys._getframe().f_back)[0]

    def close(self) -> None:
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)
        self._ours, self.spot = bool, None
