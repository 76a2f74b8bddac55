"""`/api/runs`: what was recorded."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from seismograd.reports.ranks import merged
from seismograd.server import models, ranks, telling
from seismograd.server.answers import Answer
from seismograd.server.problems import RefusedError, among
from seismograd.server.shelf import Shelf, shelf_of
from seismograd.store import NoRunError, Run

LARGEST = 2**53
"""The largest step and number that JSON carries everywhere."""
ID = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
"""What a run's id looks like: nothing in it means anything to a file system."""
SPARK = 40

router = APIRouter(tags=["runs"])

Id = Annotated[str, Path(pattern=ID, max_length=64, description="The run's id, how it begins, or `last`.")]
Step = Annotated[int | None, Query(ge=0, le=LARGEST)]
Rank = Annotated[int, Query(ge=0, le=2**31 - 1)]
Name = Annotated[str, Query(max_length=500)]
Stored = Annotated[Shelf, Depends(shelf_of)]


def found(run: Id, shelf: Stored) -> Run:
    """The run of the address."""
    return shelf.run(run)


Found = Annotated[Run, Depends(found)]


@router.get("/api/runs", response_model=models.Runs, responses=among(), summary="All runs, newest first")
def listed(
    *,
    request: Request,
    shelf: Stored,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
    text: Annotated[str, Query(max_length=200, description="Part of the name or the id.")] = "",
    status: Annotated[Literal["", "healthy", "warning", "critical", "crashed"], Query()] = "",
    state: Annotated[Literal["", "live", "ended", "lost"], Query()] = "",
) -> Response:
    """A part of the list; `total` is how many there are that fit."""
    if text or status or state:
        fitting = [run for run in shelf.runs() if telling.fits(run, text, status, state)]
        total, wanted = len(fitting), fitting[offset : offset + limit]
    else:
        total, wanted = shelf.count(), shelf.runs(limit, offset)
    counts = shelf.severities([run.id for run in wanted])
    sparks: Sparks = request.app.state.sparks
    told = [
        {**telling.row_of(run, telling.counts_of(run, counts.get(run.id, {}))), "spark": sparks.of(run)}
        for run in wanted
    ]
    return Answer({"runs": told, "total": total, "limit": limit, "offset": offset})


@router.get("/api/runs/{run}", response_model=models.RunDetail, responses=among(404), summary="One run")
def shown(run: Found, shelf: Stored) -> Response:
    """The run and everything that can be asked for by name: scalars, tables, captures."""
    return Answer(
        {
            **telling.row_of(run, telling.counts_of(run, shelf.severities([run.id]).get(run.id, {}))),
            "attempts": telling.attempts_of(run),
            "names": _every(run.names(rank) for rank in run.ranks),
            "tables": run.tables(min(run.ranks, default=0)),
            "whole": run.whole,
            "about": run.about,
            "captures": telling.captures_of(run),
            "summary": telling.summary_of(run, run.requests()),
        }
    )


def _every(lists: Any) -> list[str]:
    return list(dict.fromkeys(name for names in lists for name in names))


@router.delete(
    "/api/runs/{run}", status_code=204, responses=among(404, 409, 415, 429), summary="Forget a run that is over"
)
def forgotten(run: Id, shelf: Stored) -> Response:
    """Takes the whole id. Its captures on disk stay."""
    forget(shelf, run)
    return Response(status_code=204)


def forget(shelf: Shelf, run: str) -> None:
    """Forgets a run that is over, by its whole id."""
    there = shelf.run(run)
    if there.id != run:
        raise NoRunError(f"there is no run {run!r}: to forget one its whole id is needed ({there.id}?)")
    if there.live:
        raise RefusedError(409, "still-live", f"the run {run} is live", "ask it to stop first")
    shelf.open().delete(run)


RANKS = r"^(all|[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*)$"
"""`all`, `3`, `0-7`, `0-7,12`."""


@router.get("/api/runs/{run}/series", response_model=models.Curves, responses=among(404), summary="Scalars over steps")
def series(
    *,
    request: Request,
    run: Found,
    name: Annotated[list[Name], Query(min_length=1, max_length=50, description="Again for more.")],
    start: Step = None,
    stop: Step = None,
    points: Annotated[int, Query(ge=1, le=5000, description="At most so many; extremes are kept.")] = 1000,
    rank: Annotated[
        str,
        Query(pattern=RANKS, max_length=300, description="A rank, several (`0-7,12`), or `all`: 64 at most."),
    ] = "0",
    summary: Annotated[bool, Query(description="One band over those ranks instead of a curve for each.")] = False,
    most: Annotated[int, Query(ge=1, le=4096, description="So many ranks are read for a summary.")] = 256,
) -> Response:
    """Curves from step `start` to `stop`, thinned on the way. A name that was never read is left out.

    Of several ranks each has its curves in `ranks`. With `summary` there is at each point the lowest, the quartiles and
    the highest of all, who that is, and which ranks stand out; of more than `most` ranks the gravest are read, and
    others evenly spread.
    """
    if summary:
        summaries: ranks.Summaries = request.app.state.summaries
        return Answer(summaries.of(run, name, rank, most, start=start, stop=stop, points=points))
    if not rank.isdecimal():
        return Answer(ranks.curves_of(run, name, rank, start=start, stop=stop, points=points))
    found = run.series(name, start, stop, points=points, rank=int(rank))
    return Answer({"series": {key: telling.curve_of(curve) for key, curve in found.items()}})


Sorted = Literal["gravest", "rank", "host", "status", "steps", "loss", "seconds", "overhead", "findings"]


@router.get("/api/runs/{run}/ranks", response_model=models.Ranks, responses=among(404), summary="Ranks side by side")
def listed_ranks(
    *,
    run: Found,
    sort: Annotated[Sorted, Query(description="`gravest`: those first that most call for a look.")] = "rank",
    descending: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    offset: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
) -> Response:
    """A part of the list; `total` is how many there are. A run of one rank has none."""
    order = ranks.side_by_side(run, sort, descending)
    told = order[offset : offset + limit]
    attempts = telling.attempts_of(run)
    return Answer({"ranks": told, "total": len(order), "limit": limit, "offset": offset, "attempts": attempts})


@router.get("/api/runs/{run}/heat", response_model=models.HeatMap, responses=among(404), summary="Layers over steps")
def heat(
    *,
    run: Found,
    kind: Name = "gradient",
    column: Name = "norm",
    start: Step = None,
    stop: Step = None,
    samples: Annotated[int, Query(ge=1, le=1000)] = 200,
    rank: Rank = 0,
) -> Response:
    """One measure of all layers, in at most `samples` columns."""
    known = run.tables(rank)
    if column not in known.get(kind, ()):
        there = ", ".join(f"{name} ({', '.join(columns)})" for name, columns in known.items())
        message = f"there is no {kind!r} with {column!r} in this run"
        raise RefusedError(404, "no-such-name", message, f"there is: {there}" if there else "it has no tables")
    return Answer(telling.heat_of(run.heat(kind, column, start, stop, samples=samples, rank=rank)))


@router.get("/api/runs/{run}/findings", response_model=models.Findings, responses=among(404), summary="What was found")
def findings(
    run: Found,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    offset: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
) -> Response:
    """Most severe first, each with its page; `total` is how many there are. What is the same on several ranks is one,
    and `evidence.ranks` says which."""
    every = merged(run.findings())
    told = telling.findings_of(every[offset : offset + limit])
    return Answer({"findings": told, "total": len(every), "limit": limit, "offset": offset})


@router.get("/api/runs/{run}/events", response_model=models.Events, responses=among(404), summary="The run's log")
def events(
    *,
    run: Found,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="Those with a greater id.")] = 0,
    type: Annotated[list[Name] | None, Query(max_length=50, description="Again for more.")] = None,  # noqa: A002
    level: Annotated[Literal["", "debug", "info", "warning", "error", "critical"], Query()] = "",
    text: Annotated[str, Query(max_length=200, description="Part of the message.")] = "",
    rank: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Oldest first, of at least that level; ask again with `after` = `next` for more."""
    types = [each for each in type or () if each] or None
    told = run.events(after, types=types, level=level or None, text=text or None, limit=limit, rank=rank)
    return Answer({"events": told, "next": told[-1]["id"] if told else after})


@router.get("/api/runs/{run}/report", response_model=models.Report, responses=among(404), summary="The report")
def report(run: Found) -> Response:
    """The final one, or what there is so far."""
    return Answer(run.report())


@router.get(
    "/api/runs/{run}/page",
    responses=among(404, beside="text/html"),
    response_class=Response,
    summary="The report page",
)
def page(run: Found) -> Response:
    """One self-contained HTML file, to download."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", f"{run.name[:80]}-{run.id}").strip("-")
    headers = {"Content-Disposition": f'attachment; filename="{name}.html"'}
    return Response(run.html(), media_type="text/html", headers=headers)


@router.get(
    "/api/runs/{run}/compare/{other}",
    response_model=models.Comparison,
    responses=among(404),
    summary="Where two runs part",
)
def compared(run: Found, other: Id, shelf: Stored) -> Response:
    """The first step, quantity and layer at which they differ by more than tolerance."""
    return Answer(run.compare(shelf.run(other)).to_dict())


class Sparks:
    """Small curves of losses, made again when a run has gone on."""

    def __init__(self, most: int = 2000) -> None:
        self._most, self._lock = most, threading.Lock()
        self._made: OrderedDict[str, tuple[int, list[float]]] = OrderedDict()

    def of(self, run: Run) -> list[float]:
        with self._lock:
            known = self._made.get(run.id)
        if known is not None and known[0] == run.batch:
            return known[1]
        first = min(run.ranks, default=0)
        names = run.names(first)
        name = next((each for each in ("loss/0", "loss") if each in names), None)  # of several optimizers the first
        curve = None if name is None else run.series(name, points=SPARK, rank=first).get(name)
        values: list[float] = []
        if curve is not None:  # the mean, for one of many steps may be any; but that the last was not finite is told
            values = np.where(np.isfinite(curve.last), curve.mean, curve.last).tolist()[-SPARK:]
        with self._lock:
            self._made[run.id] = (run.batch, values)
            self._made.move_to_end(run.id)
            if len(self._made) > self._most:
                self._made.popitem(last=False)
        return values
