"""Writes a run into the store while it goes on: a bounded queue, and one thread that empties it."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

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
PATIENCE = 10.0
"""Seconds that the end of a run waits for what is not yet written."""


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
    ) -> None:
        self.url, self.run, self.name, self.rank, self.limit = url, run, name, rank, limit
        self.about, self.state, self.on_request = about, state, on_request
        self.complain: Callable[[str], None] = complain or _warn
        self.spent = 0.0
        """Seconds of processor time that the writing took so far."""
        self.thinned = 0
        """Readings that were not written because there were too many at once."""
        self.trouble: str | None = None
        """Why nothing can be written at present."""
        self.lost: str | None = None
        """Why something that was handed over is not in the store."""
        self._queue: deque[tuple[Reading, float]] = deque()
        self._findings: dict[tuple[Any, ...], Finding] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=10_000)
        self._answers: deque[tuple[int, str]] = deque()
        self._report: dict[str, Any] | None = None
        self._wake = threading.Event()
        self._condition = threading.Condition()
        self._asked = self._done = 0
        """How often a flush was asked for, and the last that was fulfilled."""
        self._ending = False
        self._deadline = 0.0
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name="seismograd-recorder", daemon=True)
        self._thread.start()

    # -- from the training -------------------------------------------------------------------------------------------

    def write_reading(self, reading: Reading) -> None:
        queue = self._queue
        queue.append((reading, time.time()))
        if len(queue) > MOST:
            self._thin()

    def write_finding(self, finding: Finding) -> None:
        self._findings[finding.key] = finding
        self._wake.set()

    def update_finding(self, finding: Finding) -> None:
        self._findings[finding.key] = finding

    def write_event(self, event: Mapping[str, Any]) -> None:
        """An event of the run: `event_type`, `message`, perhaps `level`, `timestamp` and `data`."""
        self._events.append({"time": time.time(), **event})

    def told(self) -> dict[str, Any]:
        """Where the run is recorded, and what of it could not be: for the report."""
        from seismograd.store.schema import shown

        return {"address": shown(self.url), "thinned": self.thinned, "missing": self.lost}

    def flush(self, timeout: float = PATIENCE) -> bool:
        """Waits until everything handed over so far is in the store; whether it is."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return False
        with self._condition:
            self._asked += 1
            wanted = self._asked
            self._wake.set()
            self._condition.wait_for(lambda: self._done >= wanted or not self._thread.is_alive(), timeout)
            return self._done >= wanted

    def close(self, report: dict[str, Any]) -> None:
        if os.getpid() != self._pid or self._ending:
            return
        self._report = report
        self._deadline = time.monotonic() + PATIENCE
        self._ending = True
        self._wake.set()
        self._thread.join(PATIENCE + 5.0)

    def _thin(self) -> None:
        """Every second reading goes, but for those that tell what comes only once; the newest stay as they are."""
        queue, kept, dropped = self._queue, [], 0
        waiting = [queue.popleft() for _ in range(len(queue))]
        for at, entry in enumerate(waiting):
            if at % 2 and not _is_rare(entry[0]):
                dropped += 1
            else:
                kept.append(entry)
        if len(kept) > 2 * MOST:  # nothing but rarities
            dropped += len(kept) - 2 * MOST
            kept = kept[-2 * MOST :]
        queue.extendleft(reversed(kept))
        self.thinned += dropped

    # -- the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        writing: Writing | None = None
        unwritten: Batch | None = None
        due, retry, wait = 0.0, 0.0, 1.0
        while True:
            self._wake.wait(TICK)
            self._wake.clear()
            started = time.thread_time()
            ending, asked, now = self._ending, self._asked, time.monotonic()
            try:
                if now < retry and not ending and asked == self._done:
                    continue
                writing = writing or self._open()
                self._hear(writing)
                hurries = self._findings or self._answers or ending or asked > self._done
                if unwritten is None and (now >= due or hurries):
                    unwritten = self._taken(final=ending)
                    due = now + PACE
                if unwritten is not None:
                    writing.write(unwritten)
                    unwritten = None
                self._reply(writing)
                if self.trouble is not None:
                    self._events.append(_event("store_resumed", "the store can be written again"))
                self.trouble, wait, retry = None, 1.0, 0.0
            except Exception as error:
                if writing is not None:
                    writing.disconnect()
                self._troubled(error)
                retry, wait = now + wait, min(2 * wait, 30.0)
                if ending and now < self._deadline - 1.0:
                    time.sleep(0.2)
                    self._wake.set()
                    self.spent += time.thread_time() - started
                    continue
            self.spent += time.thread_time() - started
            with self._condition:
                if self.trouble is None:
                    self._done = asked
                self._condition.notify_all()
            if ending and (self.trouble is not None or (unwritten is None and self._report is None)):
                if writing is not None:
                    writing.disconnect()
                return

    def _open(self) -> Writing:
        from seismograd.store.writing import Writing

        about = dict(self.about() if self.about else {})
        return Writing(self.url, self.run, self.name, rank=self.rank, limit=self.limit, about=about)

    def _taken(self, final: bool) -> Batch:
        """What waits, taken out of the queue."""
        queue = self._queue
        batch = Batch([queue.popleft() for _ in range(len(queue))])
        findings = list(self._findings.items())
        for key, finding in findings:
            batch.findings[key] = finding
            if self._findings.get(key) is finding:
                del self._findings[key]
        batch.events = [self._events.popleft() for _ in range(len(self._events))]
        if self.state is not None:
            batch.state = dict(self.state())
        batch.state["thinned"] = self.thinned
        batch.state["lost"] = self.lost
        if final:
            batch.report, self._report = self._report, None
        return batch

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
        self._wake.set()

    def _reply(self, writing: Writing) -> None:
        """Answers stand in the store when what they tell does."""
        while self._answers:
            writing.answered(*self._answers[0])
            self._answers.popleft()

    def _troubled(self, error: Exception) -> None:
        from seismograd.store.schema import reason

        first = self.trouble is None and self.lost is None
        self.trouble = self.lost = f"{type(error).__name__}: {reason(error)}"
        if first:
            self.complain(f"seismograd: the run cannot be recorded at present, training goes on ({self.trouble})")


def _is_rare(reading: Reading) -> bool:
    """Whether it tells what another reading will not."""
    if reading.facts or reading.origin is not None or reading.marks or "val_loss" in reading.scalars:
        return True
    loss, norm = reading.scalars.get("loss", 0.0), reading.scalars.get("grad/norm", 0.0)
    return not (abs(loss) < float("inf") and abs(norm) < float("inf"))


def _event(kind: str, message: str) -> dict[str, Any]:
    return {"time": time.time(), "event_type": kind, "message": message, "level": "warning"}


def _warn(text: str) -> None:
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except Exception:  # the user turns warnings into errors
        print(text)  # noqa: T201
