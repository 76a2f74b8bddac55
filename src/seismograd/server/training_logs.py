"""`/training-logs/debug`: the counters and the level of the newest live run, or of the one that is named."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from seismograd.server import models, telling
from seismograd.server.answers import Answer
from seismograd.server.problems import RefusedError, among
from seismograd.server.requests import ask, put
from seismograd.server.runs import ID, Stored
from seismograd.server.shelf import Shelf
from seismograd.store import Run

PATIENCE = 2.0
"""Seconds that a clear waits for the training process to do it."""

router = APIRouter(prefix="/training-logs/debug", tags=["training logs"])

Wanted = Annotated[
    str | None,
    Query(pattern=ID, max_length=64, description="A run's id; without one it is the newest live run, else the newest."),
]


@router.get("/summary", response_model=models.DebugSummary, responses=among(404), summary="What was counted")
def summary(shelf: Stored, run: Wanted = None) -> Response:
    """The counters since they were last cleared. In `general_debugger` are the entries of the run's log, and those of
    them that are warnings or worse; in `diffusion_debugger` those of diffusion steps."""
    meant = _meant(shelf, run)
    asked = [] if meant is None else meant.requests()
    counts = telling.summary_of(meant, asked)
    cleared = max((each["created"] for each in asked if each["kind"] == "clear"), default="")
    events = {} if meant is None else meant.event_counts(telling.seconds(cleared))
    diffusion = {key: number for key, number in events.items() if key[0].startswith("diffusion")}
    general = {key: number for key, number in events.items() if key not in diffusion}
    return Answer(
        {
            "run": None if meant is None else meant.id,
            "training_debugger": {
                "total_anomalies": counts["anomaly_steps"],
                "debug_history_length": min(counts["total_steps"], _whole_steps(meant)),
                **counts,
            },
            "diffusion_debugger": _logged(diffusion),
            "general_debugger": _logged(general),
        }
    )


@router.get(
    "/training/summary", response_model=models.RunSummary, responses=among(404), summary="The counters of the training"
)
def training_summary(shelf: Stored, run: Wanted = None) -> Response:
    """How many steps were seen since the counters were last cleared, and at how many something was wrong."""
    meant = _meant(shelf, run)
    asked = [] if meant is None else meant.requests()
    return Answer({**telling.summary_of(meant, asked), "run": None if meant is None else meant.id})


@router.post(
    "/level/{level}",
    response_model=models.LevelAsked,
    responses=among(404, 409, 415, 429),
    summary="Change how much is read",
)
def set_level(shelf: Stored, level: Literal["basic", "advanced", "extreme"], run: Wanted = None) -> Response:
    """Asks the live run to go on at that level, which it does within a second."""
    meant = _meant(shelf, run)
    if meant is None:
        raise RefusedError(
            409, "not-live", f"there is no run in {shelf.shown} yet", "start one: seismograd run train.py"
        )
    return Answer({"run": meant.id, "level": level, "request": ask(meant, "level", level)})


@router.post(
    "/clear", response_model=models.Cleared, responses=among(404, 415, 429), summary="Start the counters again"
)
def clear(shelf: Stored, run: Wanted = None) -> Response:
    """The counters start again; the recorded run stays. A live run has done it when this is answered, or soon after."""
    meant = _meant(shelf, run)
    if meant is None:
        return Answer({"run": None, "request": None})
    request = put(meant, "clear")
    deadline = time.monotonic() + (PATIENCE if meant.live else 0.0)
    while request["answer"] is None and time.monotonic() < deadline:
        time.sleep(0.05)
        request = next(each for each in meant.requests() if each["id"] == request["id"])
    return Answer({"run": meant.id, "request": request})


def _meant(shelf: Shelf, run: str | None) -> Run | None:
    if run is not None:
        return shelf.run(run)
    live = shelf.live()
    newest = live[0] if live else next(iter(shelf.runs(1)), None)
    return next((each for each in live if each.level is not None), newest)  # a log has no level, and trains nothing


def _whole_steps(run: Run | None) -> int:
    return 0 if run is None else sum(last - first + 1 for first, last in run.whole)


def _logged(events: dict[tuple[str, str], int]) -> dict[str, Any]:
    grave = ("warning", "error", "critical")
    return {
        "total_anomalies": sum(number for (_, level), number in events.items() if level in grave),
        "debug_history_length": sum(events.values()),
    }
