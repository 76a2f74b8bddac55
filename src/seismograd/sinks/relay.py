"""What trackers have in common: a bounded queue, and one thread that hands its content over to them.

The training only appends. As in the recorder, nothing here takes a lock that the training could be holding when a
signal comes: the handler that ends the run has to get through.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, NoReturn

from seismograd.complaints import complain as say
from seismograd.own_threads import ours
from seismograd.records import Finding, Reading
from seismograd.records import rank as own_rank

PREFIX = "seismograd/"
"""Before every name, so that none is the user's own; trackers show what has it as one group."""
LEFT_OUT = frozenset({"update/step"})
"""Scalars that only say to which step a table belongs."""
FULL = 5000
"""So many readings are handed over one by one; then every second of as many, every fourth of twice as many."""
MOST = 4096
"""Readings that wait; if there are more, every second of them goes."""
PACE = 0.5
"""Seconds between two batches."""
PATIENCE = 10.0
"""Seconds that the end of a run waits for what is not yet handed over."""
LITTLE_PATIENCE = 3.0
"""The same, if nothing could be handed over before."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds between two attempts while the tracker does not answer."""


@dataclass(frozen=True, slots=True)
class Point:
    """What a tracker is to keep of one reading: its scalars under the tracker's names."""

    step: int
    time: float
    scalars: dict[str, float]


class Relay:
    """A sink over one tracker. Each of the methods below the line is called on its thread, one after the other.

    What fails is tried again, later and later; it is said once, and never reaches the training.
    """

    title: ClassVar[str]
    """What people call the tracker."""

    def __init__(
        self, *, prefix: str = PREFIX, every: int | None = None, rank: int | None = 0, report: bool = True
    ) -> None:
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise ValueError(f"every is {every!r}: it takes 1 for each reading, 10 for every tenth, or nothing")
        self.prefix, self.every, self.rank, self.report = prefix, every, rank, report
        self.page: Callable[[], str] | None = None
        """Makes the run's page; set by the watch."""
        self.so_far: Callable[[], dict[str, Any]] | None = None
        """Makes the report of the run as it stands; set by the watch."""
        self.run: Mapping[str, Any] = {}
        self.written = self.thinned = 0
        """Readings that the tracker has, and those that were left out because there were too many."""
        self.trouble: str | None = None
        """Why nothing can be handed over at present."""
        self._rank = own_rank()
        self._writes = writes(rank)
        if rank is None and self._rank:
            self.prefix = f"{prefix}rank{self._rank}/"
        self._note: Callable[..., None] | None = None
        self._complain: Callable[[str], None] = say
        self._complained = False
        self._queue: deque[tuple[Reading, float]] = deque()
        self._taking = threading.Lock()
        """Held while what waits is taken out: two that took at once would put it out of order."""
        self._read = 0
        self._last: dict[str, int] = {}
        """The number of the reading with which a scalar was last handed over."""
        self._sick = False
        self._findings: dict[tuple[Any, ...], Finding] = {}
        self._told: dict[tuple[Any, ...], int] = {}
        self._due: deque[tuple[Any, ...]] = deque()
        self._events: deque[Mapping[str, Any]] = deque(maxlen=1000)
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._flushes: deque[threading.Event] = deque()
        self._thread: threading.Thread | None = None
        self._report: dict[str, Any] | None = None
        self._ending = self._opened = self._done = False
        self._deadline = math.inf
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    # -- from the training -------------------------------------------------------------------------------------------

    def begin(self, run: Mapping[str, Any], note: Callable[..., None], complain: Callable[[str], None]) -> None:
        """Learns which run it is, and whom to tell of what goes wrong."""
        if self._thread is not None:
            raise ValueError(f"{self!r} has had its run: make another sink for {run.get('name')!r}")
        self.run, self._note, self._complain = run, note, complain

    def write_reading(self, reading: Reading) -> None:
        if not self._writes or not reading.scalars or self._ending:
            return
        number = self._read
        self._read += 1
        stride = self.every or 1 << (number // FULL).bit_length()
        if stride > 1 and not self._wanted(reading, number, stride):
            return
        if self._thread is None:
            self._start()
        self._take(reading, time.time())

    def _take(self, reading: Reading, at: float) -> None:
        """Leaves a reading to the thread."""
        self._queue.append((reading, at))
        if len(self._queue) > MOST:
            self._thin()

    def write_finding(self, finding: Finding) -> None:
        if not self._writes or self._ending:
            return
        if self._thread is None:
            self._start()
        self._findings[finding.key] = finding
        if finding.severity.weight > self._told.get(finding.key, -1):
            self._told[finding.key] = finding.severity.weight
            self._due.append(finding.key)

    def update_finding(self, finding: Finding) -> None:
        self.write_finding(finding)

    def write_event(self, event: Mapping[str, Any]) -> None:
        if self._writes and not self._ending:
            self._events.append(event)

    def flush(self, timeout: float = PATIENCE) -> bool:
        """Waits until everything so far is handed over; whether it is."""
        if self._thread is None or os.getpid() != self._pid:
            return self._thread is None
        done = threading.Event()
        self._flushes.append(done)
        self._bell.put(None)
        return done.wait(LITTLE_PATIENCE if self.trouble else timeout) and self.trouble is None

    def close(self, report: dict[str, Any]) -> None:
        """Hands over what is left, and the report; it does not wait longer than `PATIENCE` for a tracker."""
        if os.getpid() != self._pid or self._thread is None:
            return
        if not self._ending:
            self._report = report
            self._deadline = time.monotonic() + (PATIENCE if self.trouble is None else LITTLE_PATIENCE)
            self._ending = True
            self._bell.put(None)
        self._thread.join(max(0.0, self._deadline - time.monotonic()) + 0.5)
        if not self._done:
            self._complain_of_the_rest()

    def _start(self) -> None:
        if os.getpid() != self._pid:  # a forked child has no part in it
            self._writes = False
            return
        self._prepare()
        name = f"seismograd-{type(self).__name__.lower()}"
        self._thread = threading.Thread(target=ours(self._work), name=name, daemon=True)
        self._thread.start()

    def _wanted(self, reading: Reading, number: int, stride: int) -> bool:
        """Whether one of its scalars is due, which those are that come rarely, or it turned bad, or good again."""
        last = self._last
        sick = not all(map(math.isfinite, reading.scalars.values()))
        if sick is self._sick and all(number - last.get(name, -stride) < stride for name in reading.scalars):
            return False
        self._sick = sick
        for name in reading.scalars:
            last[name] = number
        return True

    def _thin(self) -> None:
        """Every second reading goes, but for validation losses, which are few."""
        with self._taking:
            waiting = _emptied(self._queue)
            kept = [entry for at, entry in enumerate(waiting) if not at % 2 or "val_loss" in entry[0].scalars]
            while len(kept) > MOST:
                kept = kept[::2]
            self.thinned += len(waiting) - len(kept)
            self._queue.extendleft(reversed(kept))
        self._bell.put(None)

    def _complain_of_the_rest(self) -> None:
        left = [f"{len(self._queue)} readings"] if self._queue else []
        left += [f"{len(self._due)} findings"] if self._due else []
        why = f" ({self.trouble})" if self.trouble else ""
        self._said(f"{self.title} does not have {', '.join([*left, 'the report'])}, the run is over{why}", always=True)

    def _said(self, text: str, *, always: bool = False) -> None:
        """Once to the user, and once more at the end; each time to the run."""
        if self._note is not None:
            with suppress(Exception):
                self._note("sink_trouble", text, "warning")
        if always or not self._complained:
            self._complained = True
            self._complain(f"seismograd: {text}")

    # -- the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        wait = 0.0
        while True:
            if not self._ending:
                self._pause(wait or PACE)
            ending = self._ending
            flushes = _emptied(self._flushes)
            try:
                self._hand_over(ending)
            except BaseException as error:  # what a tracker raises never ends the thread before the run is over
                wait = min(max(2 * wait, FIRST_WAIT), LONGEST_WAIT)
                first = next(iter(str(error).strip().splitlines()), "")[:200]
                self.trouble = first if isinstance(error, Stop) else f"{type(error).__name__}: {first}".rstrip(": ")
                if ending:  # what does not answer now is not waited for any longer
                    self._deadline = min(self._deadline, time.monotonic() + LITTLE_PATIENCE)
                if not ending:
                    self._said(f"{self.title} cannot be written to at present, training goes on ({self.trouble})")
                elif isinstance(error, Stop) or time.monotonic() > self._deadline - 1.0:
                    return
                else:
                    time.sleep(0.2)
            else:
                wait, self.trouble = 0.0, None
                if ending:
                    self._done = True
                    return
            for flush in flushes:
                flush.set()

    def _pause(self, seconds: float) -> None:
        with suppress(Empty):
            self._bell.get(timeout=seconds)
            while True:
                self._bell.get_nowait()

    def _hand_over(self, ending: bool) -> None:
        if not self._opened:
            self._open()
            self._opened = True
        with self._taking:
            waiting = _emptied(self._queue)
        if waiting:
            try:
                self._send([self._point(reading, at) for reading, at in waiting])
            except BaseException:
                with self._taking:
                    self._queue.extendleft(reversed(waiting))
                raise
            self.written += len(waiting)
        while self._due:
            self._send_finding(self._findings[self._due[0]])
            self._due.popleft()
        while self._events:
            self._send_event(self._events[0])
            self._events.popleft()
        self._settle()
        if ending and self._report is not None:
            self._finish(self._report)

    def _point(self, reading: Reading, at: float) -> Point:
        named = {self.prefix + name: float(value) for name, value in reading.scalars.items() if name not in LEFT_OUT}
        return Point(reading.step, at, named)

    # -- for each tracker --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Looks for the user's active run, on the thread that trains: some trackers keep one for each thread."""

    def _open(self) -> None:
        """Opens a run where there is none."""

    def _send(self, points: Sequence[Point]) -> None:
        raise NotImplementedError

    def _send_finding(self, finding: Finding) -> None:
        """A new finding, or one that got more severe."""

    def _send_event(self, event: Mapping[str, Any]) -> None:
        """What a recovery did."""

    def _settle(self) -> None:
        """After each batch."""

    def _finish(self, report: dict[str, Any]) -> None:
        """Keeps the report, and ends the run if it is our own."""


class Stop(Exception):  # noqa: N818 (it says what to do)
    """It makes no sense to try again."""


def give_up(why: str) -> NoReturn:
    raise Stop(why)


def writes(rank: int | None) -> bool:
    """Whether this process writes, if `rank` is asked for: `None` for all of them."""
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise ValueError(f"rank is {rank!r}: it takes the number of the rank that writes, or None for every one")
    return rank is None or rank == own_rank()


def _emptied(queue: deque[Any]) -> list[Any]:
    taken = []
    with suppress(IndexError):
        while True:
            taken.append(queue.popleft())
    return taken
