"""Writes a run into the store while it goes on: a bounded queue, and one thread that empties it.

The training only appends to a queue. Nothing here takes a lock that the training could be holding when a signal comes:
the handler that ends the run has to get through.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from seismograd.complaints import complain as say
from seismograd.own_threads import ours
from seismograd.records import Finding, Reading

if TYPE_CHECKING:
    from sqlalchemy import URL

    from seismograd.store.writing import Writing

TICK = 0.25
"""Seconds between two looks at what is asked of the run."""
PACE = 0.5
"""Seconds between two batches; a finding does not wait."""
MOST = 4096
"""Readings that wait to be written; if there are more, every second of them goes."""
MOST_CELLS = 4_000_000
"""Numbers in the tables of those: 32 MB."""
MOST_EVENTS = 10_000
PATIENCE = 10.0
"""Seconds that the end of a run waits for what is not yet written."""
LITTLE_PATIENCE = 3.0
"""The same, if nothing could be written before."""
SHORTEST_WAIT, LONGEST_WAIT = 0.5, 5.0
"""Seconds between two attempts while the store cannot be written."""


@dataclass(slots=True)
class Batch:
    """What is to be written in one go: all of it, or nothing."""

    readings: list[tuple[Reading, float]] = field(default_factory=list)
    findings: dict[tuple[Any, ...], Finding] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    report: dict[str, Any] | None = None
    state: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.readings or self.findings or self.events or self.report is not None)


class Recorder:
    """A sink that keeps the run in a store. It never holds up the training, and never raises into it.

    Where the store is a folder and the run has several ranks (`world`), each writes into a file of its own. A process
    that finds its rank written by another one goes on behind it, as a later `attempt`.

    `state` tells how the run is (status, level, counts); `on_request` is told, on the thread of the recorder, what
    somebody asks for from outside, and how to answer in a sentence, at once or later, on any thread.
    """

    def __init__(
        self,
        url: URL,
        run: str,
        name: str,
        *,
        rank: int = 0,
        limit: int = 200 * 1024 * 1024,
        about: Callable[[], Mapping[str, Any]] | None = None,
        state: Callable[[], Mapping[str, Any]] | None = None,
        on_request: Callable[[str, Any, Callable[[str], None]], None] | None = None,
        complain: Callable[[str], None] | None = None,
        on_start: Callable[[], None] | None = None,
        world: int = 1,
        attempt: int = 0,
    ) -> None:
        from seismograd.store.shared import Folder
        from seismograd.store.writing import load

        folder = Folder.of(url, run)
        self.folder = folder if folder is not None and (world > 1 or folder.exists()) else None
        """Where each of several ranks has a file of its own, if the store is no server."""
        self.attempt = attempt
        load(url)  # now: a child that is forked while another thread imports has half a module
        self.url, self.run, self.name, self.rank, self.limit = url, run, name, rank, limit
        self.about, self.state, self.on_request = about, state, on_request
        self.complain: Callable[[str], None] = complain or say
        self.on_start = on_start
        self.spent = 0.0
        """Seconds of processor time that the writing took so far, without its beginning."""
        self.written = 0
        """Readings that are in the store, or were."""
        self.thinned = 0
        """Readings that were not written because there were too many at once."""
        self.trouble: str | None = None
        """Why nothing can be written at present."""
        self._missing: dict[str, str] = {}
        self._remarked: dict[str, int] = {}
        self._complained = False
        self._queue: deque[tuple[Reading, float]] = deque()
        self._came = self._went = 0
        """Numbers in the tables that came, written by the training, and those that went, written by the thread."""
        self._findings: dict[tuple[Any, ...], Finding] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._answers: deque[tuple[int, str]] = deque()
        self._report: dict[str, Any] | None = None
        self._flushes: deque[threading.Event] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        """Wakes the thread; a signal handler may use it too."""
        self._ending = False
        self._deadline = 0.0
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        """Begins with the first that is to be written: a run without anything leaves nothing behind."""

    # -- from the training -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if os.getpid() == self._pid:
            self._thread = threading.Thread(target=ours(self._work), name="seismograd-recorder", daemon=True)
            self._thread.start()  # before a signal may come that waits for it
            if self.on_start is not None:
                self.on_start()

    def open(self) -> None:
        """Begins at once, before there is anything to write."""
        if self._thread is None:
            self._start()

    def write_reading(self, reading: Reading) -> None:
        if self._thread is None:
            self._start()
        queue = self._queue
        queue.append((reading, time.time()))
        if reading.tensors:
            self._came += weight(reading)
        if len(queue) > MOST or self._came - self._went > MOST_CELLS:
            self._thin()
        elif len(queue) == MOST // 2:
            self._bell.put(None)

    def write_finding(self, finding: Finding) -> None:
        if self._thread is None:
            self._start()
        self._findings[finding.key] = finding
        self._bell.put(None)

    def update_finding(self, finding: Finding) -> None:
        self._findings[finding.key] = finding

    def write_event(self, event: Mapping[str, Any]) -> None:
        """An event of the run: `event_type`, `message`, perhaps `level`, `timestamp` and `data`."""
        self._events.append({"time": time.time(), **event})

    def told(self) -> dict[str, Any]:
        """Where the run is recorded, and what of it could not be: for the report."""
        from seismograd.store.schema import shown

        missing = list(self._missing.values())
        if self.trouble is not None:
            missing.append(f"it cannot be written at present: {self.trouble}")
        return {
            "address": shown(self.url),
            "written": self.written,
            "thinned": self.thinned,
            "missing": "; ".join(missing) or None,
        }

    def flush(self, timeout: float = PATIENCE) -> bool:
        """Waits until everything handed over so far is in the store; whether it is."""
        if os.getpid() != self._pid or self._thread is None or not self._thread.is_alive():
            return self._thread is None
        done = threading.Event()
        self._flushes.append(done)
        self._bell.put(None)
        return done.wait(timeout) and self.trouble is None

    def close(self, report: dict[str, Any]) -> None:
        """Writes what is left, and the report, and lets go of the store. A second call waits for the first."""
        if os.getpid() != self._pid or self._thread is None:
            return
        if not self._ending:
            self._report = report
            self._deadline = time.monotonic() + (PATIENCE if self.trouble is None else LITTLE_PATIENCE)
            self._ending = True
            self._bell.put(None)
        self._thread.join(PATIENCE + 5.0)

    def _thin(self) -> None:
        """Every second reading goes, but for those that tell what comes only once."""
        waiting = _emptied(self._queue)
        kept = [entry for at, entry in enumerate(waiting) if not at % 2 or _is_rare(entry[0])]
        while len(kept) > 1 and (len(kept) > MOST or _cells(kept) > MOST_CELLS):  # nothing but rarities
            kept = kept[::2]
        self.thinned += len(waiting) - len(kept)
        self._came -= _cells(waiting) - _cells(kept)
        self._queue.extendleft(reversed(kept))
        self._bell.put(None)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        writing: Writing | None = None
        unwritten: Batch | None = None
        due, retry, wait = 0.0, 0.0, SHORTEST_WAIT
        while True:
            self._listen()
            began, now, ending = time.thread_time(), time.monotonic(), self._ending
            flushes = _emptied(self._flushes)
            if now < retry and not (ending or flushes):
                continue
            known = writing is not None
            try:
                writing = writing or self._open()
                self._hear(writing)
                hurries = self._findings or self._answers or ending or flushes or len(self._queue) >= MOST // 2
                if unwritten is None and (now >= due or hurries):
                    unwritten = self._taken(final=ending)
                    due = now + PACE
                if unwritten is not None:
                    writing.write(unwritten)
                    self.written += len(unwritten.readings)
                    unwritten = None
                self._reply(writing)
                writing.thin()
                self._remark(writing)
                self._resumed()
                wait, retry = SHORTEST_WAIT, 0.0
            except Exception as error:
                self._troubled(error)
                if writing is not None:
                    writing.disconnect()
                retry, wait = now + wait, min(2 * wait, LONGEST_WAIT)
            if known:
                self.spent += time.thread_time() - began
            for done in flushes:
                done.set()
            if ending and self._is_over(writing, unwritten):
                if writing is not None:
                    writing.disconnect()
                return

    def _listen(self) -> None:
        """Waits for the next tick, or until somebody is in a hurry."""
        try:
            self._bell.get(timeout=TICK)
            while True:
                self._bell.get_nowait()
        except Empty:
            pass

    def _open(self) -> Writing:
        from seismograd.store.writing import Writing

        about = dict(self.about() if self.about else {})
        return Writing(
            self.url,
            self.run,
            self.name,
            rank=self.rank,
            limit=self.limit,
            about=about,
            folder=self.folder,
            attempt=self.attempt,
        )

    def _taken(self, final: bool) -> Batch:
        """What waits, taken out of the queue."""
        if self.thinned:  # known before the batch is written, which may be the last one
            self._missing["thinned"] = self._too_many()
        batch = Batch(state={**self._told_state(), "thinned": self.thinned, "lost": self.told()["missing"]})
        batch.readings, batch.events = _emptied(self._queue), _emptied(self._events)
        self._went += _cells(batch.readings)
        for key in tuple(self._findings):
            batch.findings[key] = self._findings.pop(key)
        if final:
            batch.report, self._report = self._report, None
        return batch

    def _told_state(self) -> Mapping[str, Any]:
        try:
            return {} if self.state is None else self.state()
        except Exception:  # the training changed what was being told, just then
            return {}

    def _is_over(self, writing: Writing | None, unwritten: Batch | None) -> bool:
        """Whether nothing is left to be written, or there is no more time for it."""
        if self.trouble is None:
            return unwritten is None and self._report is None
        if time.monotonic() < self._deadline:
            time.sleep(0.1)
            self._bell.put(None)
            return False
        if writing is not None and writing.is_gone:
            self.written = 0
            self._missing["end"] = "the file that it was written to is gone"
            return True
        left = len(self._queue) + (len(unwritten.readings) if unwritten else 0)
        self._missing["end"] = f"the last {left:,} readings and the end of the run are not in the store"
        return True

    def _too_many(self) -> str:
        return f"{self.thinned:,} readings came faster than they could be written"

    def _remark(self, writing: Writing) -> None:
        """Tells in the run itself what of it is not there."""
        remarks = (
            ("thinned", self.thinned, self._too_many()),
            ("replaced", writing.replaced, "the run was deleted from the store while it went on: what it had is gone"),
            ("refused", writing.refused, f"{writing.refused:,} readings, findings or events cannot be written down"),
            (
                "superseded",
                int(writing.is_superseded),
                "another process goes on with this rank: this one is not recorded",
            ),
            ("names", int(writing.names_are_many), "of so many names the newer ones are kept at full rate only"),
        )
        for key, number, message in remarks:
            told = self._remarked.get(key, 0)
            if number >= 2 * told and number > told:  # again when it doubled
                self._remarked[key] = number
                self._events.append(_event(f"store_{key}", message))
                self._missing[key] = message

    def _hear(self, writing: Writing) -> None:
        """What somebody asks of the run, told to whoever can do it."""
        if self.on_request is None:
            return
        for number, kind, value in writing.asked():
            writing.took(number)
            answer = partial(self._answer, number)
            try:
                self.on_request(kind, value, answer)
            except Exception as error:
                answer(f"it failed: {type(error).__name__}: {error}")

    def _answer(self, number: int, text: str) -> None:
        self._answers.append((number, text))
        self._bell.put(None)

    def _reply(self, writing: Writing) -> None:
        """Answers stand in the store when what they tell does."""
        while self._answers:
            writing.answered(*self._answers[0])
            self._answers.popleft()

    def _troubled(self, error: Exception) -> None:
        from seismograd.store.schema import reason

        why = reason(error)
        if self.trouble is None:
            self._events.append(_event("store_unavailable", f"the run cannot be recorded at present: {why}"))
            if not self._complained:
                self._complained = True
                self.complain(f"seismograd: the run cannot be recorded at present, training goes on ({why})")
        self.trouble = why

    def _resumed(self) -> None:
        if self.trouble is not None:
            self._events.append(_event("store_resumed", "the run is being recorded again"))
            self.trouble = None


def weight(reading: Reading) -> int:
    """How many numbers its tables have."""
    return sum(len(stats.names) * len(stats.columns) for stats in reading.tensors.values())


def _cells(entries: Iterable[tuple[Reading, float]]) -> int:
    return sum(weight(reading) for reading, _ in entries)


def _is_rare(reading: Reading) -> bool:
    """Whether it tells what another reading will not."""
    if reading.facts or reading.marks or reading.origin is not None or reading.insight is not None:
        return True
    if "val_loss" in reading.scalars or "nonfinite" in reading.tensors:
        return True
    return not all(map(isfinite, reading.scalars.values()))


def _emptied(queue: deque[Any]) -> list[Any]:
    """What is in the queue, taken out; others may do so at the same time."""
    taken = []
    try:
        for _ in range(len(queue)):
            taken.append(queue.popleft())
    except IndexError:
        pass
    return taken


def _event(kind: str, message: str) -> dict[str, Any]:
    return {"time": time.time(), "event_type": kind, "message": message, "level": "warning"}
