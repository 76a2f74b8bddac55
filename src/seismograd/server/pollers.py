"""Looks at the runs that somebody watches: one look at a time for each run, however many watch it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import anyio.to_thread

from seismograd.reports.ranks import merged
from seismograd.server import telling
from seismograd.server.answers import written
from seismograd.server.problems import log
from seismograd.server.shelf import Shelf
from seismograd.store import NoRunError, Run, StoreError

PACE = 0.2
"""Seconds between two looks."""
PATIENCE = 2.0
"""Seconds until the next look when the store does not answer."""
POINTS = 500
"""The most values of a scalar in one message."""
BACK = 1000
"""Steps that are sent again to one who does not say what it has."""
LATE = 64
"""A value may come so many steps after others of its step."""
EVENTS = 200
PAST = 300
"""So many of the last looks are known, for one who has everything up to a batch."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cursor:
    """What a listener has."""

    version: int
    """Of the poller."""
    event: int
    steps: tuple[tuple[str, int], ...]
    """The last step of each scalar."""

    @property
    def step(self) -> int:
        return max((step for _, step in self.steps), default=-1)


class Past(NamedTuple):
    """What a look reached."""

    batch: int
    version: int
    event: int
    reach: int


@dataclass
class Seen:
    """What one look showed."""

    run: Run
    version: int = 0
    findings: dict[Any, tuple[int, Any]] = field(default_factory=dict)
    """By key: the version in which it last changed, and the finding."""
    requests: dict[int, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    event: int = 0
    """The id of the last event."""
    reach: int = -1
    """The last step that is in the store, on the first rank."""
    is_gone: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_gone or not self.run.live

    @property
    def mark(self) -> tuple[Any, ...]:
        return (self.run.batch, self.is_over, self.run.ranks)

    def row(self) -> dict[str, Any]:
        counts: dict[str, int] = {}
        every = [finding for _, finding in self.findings.values()]
        for finding in merged(every) if len(self.run.ranks) > 1 else every:
            counts[finding.severity.value] = counts.get(finding.severity.value, 0) + 1
        return telling.row_of(self.run, counts)


class Poller:
    """Looks at one run while it has listeners, and makes their messages: the same for all that have the same."""

    def __init__(self, shelf: Shelf, run: Run, limiter: anyio.CapacityLimiter) -> None:
        self.listeners = 0
        self._batches: deque[Past] = deque(maxlen=PAST)
        """What the last looks reached, to know what came after a batch."""
        self._shelf, self._limiter = shelf, limiter
        self._id = run.id
        self._seen: Seen | None = None
        self._changed = asyncio.Event()
        self._made: dict[Any, asyncio.Task[tuple[Cursor, str | None]]] = {}
        self._first = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    async def seen(self) -> Seen:
        """The newest look."""
        async with self._first:
            if self._seen is None:
                self._seen = await self.in_thread(lambda: self._look(None))
                self._task = asyncio.create_task(self._watch())
        return self._seen

    async def next(self, version: int, timeout: float) -> None:
        """Waits until there is something newer than that version, or the time is over."""
        if self._seen is not None and self._seen.version > version:
            return
        changed = self._changed
        try:
            async with asyncio.timeout(timeout):
                await changed.wait()
        except TimeoutError:
            return

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        for task in (self._task, *self._made.values()):
            if task is not None:
                task.cancel()
        self._task = None
        self._made.clear()

    async def _watch(self) -> None:
        wait = PACE
        while True:
            await asyncio.sleep(wait)
            before = self._seen
            try:
                fresh = await self.in_thread(lambda: self._look(self._seen))
                wait = PACE
            except StoreError as error:
                log.warning("the run %s cannot be looked at: %s", self._id, error)
                wait = PATIENCE
                continue
            except Exception:
                log.exception("the run %s cannot be looked at", self._id)
                wait = PATIENCE
                continue
            if before is None or fresh.version != before.version:
                self._seen = fresh
                self._made.clear()
                self.wake()

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def _look(self, before: Seen | None) -> Seen:
        """The run as it is now; the same version as before if nothing is new."""
        try:
            run = self._shelf.run(self._id)
        except NoRunError:
            if before is None:
                raise
            return before if before.is_gone else Seen(before.run, before.version + 1, is_gone=True)
        version = 1 if before is None else before.version + 1
        fresh = Seen(run, version, event=0 if before is None else before.event)
        asked = {each["id"]: each for each in run.requests()}
        if before is not None:
            known = {number: request for number, (_, request) in before.requests.items()}
            if before.mark == fresh.mark and known == asked:
                return before
        for finding in run.findings():
            key = (finding.key, finding.evidence.get("attempt"))
            old = None if before is None else before.findings.get(key)
            fresh.findings[key] = old if old is not None and old[1] == finding else (version, finding)
        for number, request in asked.items():
            was = None if before is None else before.requests.get(number)
            fresh.requests[number] = was if was is not None and was[1] == request else (version, request)
        fresh.event, fresh.reach = run.last_event(), run.reach()
        self._batches.append(Past(run.batch, version, fresh.event, fresh.reach))
        return fresh

    def begin(self, seen: Seen, names: list[str], rank: int, batch: int | None, after: int | None) -> Cursor:
        """Where a listener begins who has all up to `batch`, or up to the step `after`; else with what is new."""
        reach = seen.reach if rank == 0 else seen.run.reach(rank)
        past = Past(seen.run.batch, seen.version, seen.event, reach)
        if batch is not None and batch < seen.run.batch:
            known = [each for each in self._batches if each.batch <= batch and rank == 0]
            past = known[-1] if known else Past(batch, 0, seen.event, max(-1, reach - BACK))
        step = past.reach if after is None else after
        return Cursor(past.version, past.event, tuple((name, step) for name in names))

    async def message(self, cursor: Cursor, rank: int) -> tuple[Cursor, str | None]:
        """What is newer than the cursor, as JSON, and the cursor then. Made once for all that ask the same."""
        seen = self._seen
        assert seen is not None
        key = (cursor, rank)
        if key not in self._made:
            work = asyncio.create_task(self.in_thread(lambda: self._message(seen, cursor, rank)))
            work.add_done_callback(_heard)
            self._made[key] = work
        return await asyncio.shield(self._made[key])

    def _message(self, seen: Seen, cursor: Cursor, rank: int) -> tuple[Cursor, str | None]:
        if seen.is_gone:
            return Cursor(seen.version, cursor.event, cursor.steps), None
        run, last = seen.run, dict(cursor.steps)
        told: dict[str, Any] = {}
        if last:
            start = max(min(last.values()), cursor.step - LATE) + 1
            points = POINTS // 2 if run.steps - start > POINTS else POINTS
            for name, curve in run.series(list(last), start=start, points=points, rank=rank).items():
                fresh = curve.steps > last[name]
                if fresh.any():
                    told[name] = telling.points_of(curve, fresh)
                    last[name] = int(curve.steps[-1])
        events = run.events(after=cursor.event, limit=EVENTS) if seen.event > cursor.event else []
        after = Cursor(seen.version, events[-1]["id"] if events else cursor.event, tuple(last.items()))
        message = {
            "run": seen.row(),
            "series": told,
            "findings": telling.findings_of(each for at, each in seen.findings.values() if at > cursor.version),
            "events": events,
            "requests": [each for at, each in seen.requests.values() if at > cursor.version],
        }
        return after, written(message).decode()


def _heard(task: asyncio.Task[Any]) -> None:
    """An error nobody waits for any more is not complained about."""
    if not task.cancelled():
        task.exception()
