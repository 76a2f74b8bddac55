"""`/api/runs/{run}/requests`: what is asked of a live run. The training process takes it from the store."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from seismograd.records import DebugLevel
from seismograd.server import models
from seismograd.server.answers import Answer
from seismograd.server.problems import RefusedError, among
from seismograd.server.runs import LARGEST, Found
from seismograd.store import Run

router = APIRouter(tags=["requests"])


@router.post(
    "/api/runs/{run}/requests",
    status_code=202,
    response_model=models.Asked,
    responses=among(404, 409, 413, 415, 429),
    summary="Ask a live run for something",
)
def asked(run: Found, wish: models.Wish) -> Response:
    """Another level or budget, a stop after the step, its capture, a trace of some steps, counters that start again.

    The answer stands in the request when the training process has done it, and comes over the live stream too.
    """
    return Answer({"request": ask(run, wish.kind, checked(wish))}, status_code=202)


@router.get(
    "/api/runs/{run}/requests", response_model=models.Requests, responses=among(404), summary="What was asked of a run"
)
def requests(
    run: Found,
    before: Annotated[int, Query(ge=1, le=LARGEST, description="Those with a smaller id.")] = LARGEST,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """The newest, oldest of them first, each with its answer once there is one; `before` leads to older ones."""
    return Answer({"requests": [each for each in run.requests() if each["id"] < before][-limit:]})


def ask(run: Run, kind: str, value: Any = None) -> dict[str, Any]:
    """Puts the request into the store, if there is somebody to take it."""
    if not run.live:
        how = "has ended" if run.ended is not None else "was lost: it has not been heard of any more"
        raise RefusedError(409, "not-live", f"the run {run.id} {how}", "only a live run can be asked for something")
    return put(run, kind, value)


def put(run: Run, kind: str, value: Any = None) -> dict[str, Any]:
    number = run.ask(kind, value)
    return next(each for each in run.requests() if each["id"] == number)


def checked(wish: models.Wish) -> Any:
    """The value, as the training process takes it."""
    value = wish.value
    if wish.kind == "level":
        if value not in [level.value for level in DebugLevel]:
            raise _wrong(f"the level is {value!r}", "basic, advanced or extreme")
        return value
    if wish.kind == "budget":
        if isinstance(value, str) or (value is not None and not 0 < value <= 1):
            raise _wrong(f"the budget is {value!r}", "a share above 0 and at most 1; null for that of the level")
        return value
    if wish.kind == "trace":
        if value is None:
            return None
        if isinstance(value, str) or not 1 <= value <= 100 or value != int(value):
            raise _wrong(f"a trace of {value!r} steps was asked for", "1 to 100; null for the usual number")
        return int(value)
    if value is not None:
        raise _wrong(f"{wish.kind} takes no value, and was given {value!r}", "leave it out")
    return None


def _wrong(message: str, hint: str) -> RefusedError:
    return RefusedError(422, "not-valid", message, hint)
