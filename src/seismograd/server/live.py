"""`/api/runs/{run}/live`: a run as it goes on, as server-sent events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from seismograd.server.answers import written
from seismograd.server.pollers import Cursor, Poller, Seen
from seismograd.server.problems import EVENTS, RefusedError, among
from seismograd.server.runs import LARGEST, Found, Name, Rank
from seismograd.server.shelf import Shelf
from seismograd.store import Run

HEARTBEAT = 10.0
"""Seconds of silence after which a comment is sent."""
THREADS = 8
"""That look into the store for streams, beside those of other requests."""

router = APIRouter(tags=["live"])


class Live:
    """All streams of the server."""

    def __init__(self, shelf: Shelf, most: int) -> None:
        self.most, self.streams, self.is_ending = most, 0, False
        self._shelf = shelf
        self._pollers: dict[str, Poller] = {}
        self._limiter: anyio.CapacityLimiter | None = None

    @asynccontextmanager
    async def listen(self, run: Run) -> AsyncIterator[Poller]:
        """The poller of a run, as long as somebody listens."""
        if self.streams >= self.most:
            message = f"{self.streams} streams are open already"
            raise RefusedError(429, "too-many-streams", message, "close some pages", {"Retry-After": "5"})
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(THREADS)
        poller = self._pollers.get(run.id)
        if poller is None:
            poller = self._pollers[run.id] = Poller(self._shelf, run, self._limiter)
        poller.listeners += 1
        self.streams += 1
        try:
            yield poller
        finally:
            self.streams -= 1
            poller.listeners -= 1
            if not poller.listeners:
                poller.stop()
                if self._pollers.get(run.id) is poller:
                    del self._pollers[run.id]

    def end(self) -> None:
        """All streams end now."""
        self.is_ending = True
        for poller in self._pollers.values():
            poller.wake()


async def listening(request: Request, run: Found) -> AsyncIterator[Poller]:
    live: Live = request.app.state.live
    async with live.listen(run) as poller:
        yield poller


@router.get(
    "/api/runs/{run}/live",
    response_class=EventSourceResponse,
    responses=among(404, 429, beside=EVENTS),
    summary="The run as it goes on",
)
async def stream(
    *,
    request: Request,
    poller: Annotated[Poller, Depends(listening)],
    name: Annotated[list[Name] | None, Query(max_length=50, description="Scalars; again for more.")] = None,
    rank: Rank = 0,
    from_: Annotated[
        int | None, Query(alias="from", ge=0, le=LARGEST, description="The batch up to which all is known.")
    ] = None,
    after: Annotated[
        int | None, Query(ge=-1, le=LARGEST, description="The step up to which all is known; more exact than `from`.")
    ] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events. `hello` with the run comes at once; `batch` with the run, new values, changed findings, new
    events and changed requests whenever the store has something new; `ended` with the run at its end, when the stream
    closes. A comment comes after ten seconds of silence. An event's id lets a stream go on where it broke off."""
    live: Live = request.app.state.live
    seen = await poller.seen()
    names = list(dict.fromkeys(name or ()))
    batch, step, event = _resumed(last_event_id, from_, after)
    cursor = await poller.in_thread(lambda: poller.begin(seen, names, rank, batch, step))
    if event is not None:
        cursor = Cursor(cursor.version, event, cursor.steps)
    yield _event("hello", written(seen.row()).decode(), seen, cursor)
    spoken = time.monotonic()
    while not live.is_ending:
        seen = await poller.seen()
        if seen.version > cursor.version:
            cursor, message = await poller.message(cursor, rank)
            if message is not None:
                yield _event("batch", message, seen, cursor)
                spoken = time.monotonic()
            continue
        if seen.is_over:
            yield _event("ended", written(seen.row()).decode(), seen, cursor)
            return
        await poller.next(cursor.version, spoken + HEARTBEAT - time.monotonic())
        if time.monotonic() - spoken >= HEARTBEAT:
            yield ServerSentEvent(comment="still here")
            spoken = time.monotonic()


def _event(kind: str, data: str, seen: Seen, cursor: Cursor) -> ServerSentEvent:
    return ServerSentEvent(raw_data=data, event=kind, id=f"{seen.run.batch}.{cursor.step}.{cursor.event}")


def _resumed(mark: str | None, batch: int | None, step: int | None) -> tuple[int | None, int | None, int | None]:
    """Batch, step and event up to which all is known: what the browser says when it comes back counts most."""
    parts = (mark or "").split(".")
    if len(parts) == 3 and all(part.removeprefix("-").isdecimal() and len(part) < 17 for part in parts):
        return int(parts[0]), int(parts[1]), int(parts[2])
    return batch, step, None
