"""What is answered when something is wrong: one shape, whatever the status, and nothing of the server's inside."""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from seismograd.server.answers import Answer
from seismograd.server.models import Fault, Problem
from seismograd.store import NoRunError, StoreError
from seismograd.store.codec import DamagedError

log = logging.getLogger("seismograd.server")

EVENTS = "text/event-stream"
LONGEST = 300
"""So much of what was asked is quoted back."""

RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request could not be read, or is for another host."},
    401: {"model": Problem, "description": "The token is missing or wrong."},
    403: {"model": Problem, "description": "It comes from another site, or the server only shows."},
    404: {"model": Problem, "description": "There is no such run or address."},
    409: {"model": Problem, "description": "The run's state does not allow it."},
    413: {"model": Problem, "description": "The body is too large."},
    414: {"model": Problem, "description": "The query is too long."},
    415: {"model": Problem, "description": "The body is not marked as JSON."},
    422: {"model": Problem, "description": "A value is not one of those allowed."},
    429: {"model": Problem, "description": "Too many requests."},
    500: {"model": Problem, "description": "The server failed; its log says how."},
    503: {"model": Problem, "description": "The store cannot be read or written now."},
}
"""Every answer that is no success, for the schema."""

_HINTS = {
    404: "GET /api/runs lists the runs, /docs the addresses",
    405: "/docs lists what can be done with each address",
    422: "/docs says which values are allowed",
}


def among(*statuses: int, beside: str = "") -> dict[int | str, dict[str, Any]]:
    """The problems with these statuses, and those that any call can have; `beside` is the type of a success that is no
    JSON, as the problems are."""
    found: dict[int | str, dict[str, Any]] = {
        status: RESPONSES[status] for status in sorted({400, 401, 403, 414, 422, 500, 503, *statuses})
    }
    if not beside:
        return found
    told = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    plain: dict[int | str, dict[str, Any]] = {
        status: {"description": problem["description"], "content": told} for status, problem in found.items()
    }
    if beside != EVENTS:  # of which FastAPI tells more
        plain[200] = {"content": {beside: {"schema": {"type": "string"}}}}
    return plain


class RefusedError(Exception):
    """Something that is not done, with the status, the code and the words of the answer."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint
        self.headers = dict(headers or {})

    def answer(self) -> Response:
        fault = Fault(status=self.status, code=self.code, message=clipped(self.message), hint=clipped(self.hint))
        return Answer(Problem(error=fault).model_dump(), status_code=self.status, headers=self.headers)


def clipped(text: str) -> str:
    """The text, shortened if it is long."""
    return text if len(text) <= LONGEST * 4 else f"{text[: LONGEST * 4]}..."


def failed() -> RefusedError:
    """What is said of an error of ours: nothing but that it happened."""
    return RefusedError(500, "server-error", "the server failed at this request", "its terminal shows what went wrong")


def no_store(error: Exception) -> RefusedError:
    return RefusedError(503, "store-unavailable", str(error), "the page and the training go on; try again in a moment")


def handle(app: FastAPI) -> None:
    """Gives every error of the app's own and of FastAPI's the one shape."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        return error.answer()

    async def no_run(_: Request, error: Exception) -> Response:
        return RefusedError(404, "no-such-run", str(error), _HINTS[404]).answer()

    async def store(_: Request, error: Exception) -> Response:
        return no_store(error).answer()

    async def damaged(_: Request, error: Exception) -> Response:
        return RefusedError(
            500, "damaged", f"the store is damaged: {error}", "seismograd runs shows what is left"
        ).answer()

    async def plain(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _of_http(error).answer()

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _of_validation(error).answer()

    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(NoRunError, no_run)
    app.add_exception_handler(StoreError, store)
    app.add_exception_handler(DamagedError, damaged)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(RequestValidationError, invalid)


def _of_http(error: HTTPException) -> RefusedError:
    status = error.status_code
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "error"
    detail = error.detail if isinstance(error.detail, str) and error.detail else phrase
    return RefusedError(status, phrase.lower().replace(" ", "-"), detail, _HINTS.get(status, ""), error.headers)


def _of_validation(error: RequestValidationError) -> RefusedError:
    told = []
    for each in error.errors()[:5]:
        place = ".".join(str(part)[:LONGEST] for part in each.get("loc", ()))
        given = each.get("input")
        shown = f", not {given[:LONGEST]!r}" if isinstance(given, str) and each.get("type") != "missing" else ""
        told.append(f"{place}: {each.get('msg', 'is not valid')}{shown}")
    return RefusedError(422, "not-valid", "; ".join(told) or "the request is not valid", _HINTS[422])
