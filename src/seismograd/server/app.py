"""The app: an HTTP service over a store, and the page that uses it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from fastapi import FastAPI

import seismograd
from seismograd.server import about, explaining, files, live, metrics, ranks, requests, runs, training_logs
from seismograd.server.gate import HOME_HOSTS, Gate, Limits
from seismograd.server.login import Login
from seismograd.server.problems import handle
from seismograd.server.shelf import Shelf

DESCRIPTION = """\
Runs of Seismograd: what was read, what was found, and requests to those that are live.

All JSON is strict: a number that is none is the string "NaN", "Infinity" or "-Infinity". Whatever goes wrong is
answered in one shape, `{"error": {"status", "code", "message", "hint"}}`. A call that changes something carries
`Content-Type: application/json` or `X-Seismograd: 1`. A server that was started with a token wants
`Authorization: Bearer TOKEN`, or the cookie that `/?token=TOKEN` sets.

This is version 1, as the header `Seismograd-API` of every answer says: answers may gain fields, nothing else changes.
What would break a client will be `/api/v2`, beside it.
"""


def create_app(
    store: str | os.PathLike[str] | None = None,
    *,
    token: str | None = None,
    hosts: Iterable[str] = HOME_HOSTS,
    read_only: bool = False,
    limits: Limits | None = None,
) -> FastAPI:
    """The service over the runs of `store`: a folder, a `.db` file or a URL, as everywhere.

    It answers only for `hosts`; with a `token` it wants that; `read_only` refuses whatever would change something.
    """
    limits = limits or Limits()
    shelf = Shelf(store)
    streams = live.Live(shelf, limits.streams)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        streams.is_ending = False
        try:
            yield
        finally:
            streams.end()
            shelf.close()

    app = FastAPI(
        title="Seismograd",
        version=seismograd.__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.shelf, app.state.live, app.state.sparks = shelf, streams, runs.Sparks()
    app.state.summaries = ranks.Summaries()
    app.state.read_only = read_only
    app.add_middleware(Gate, login=Login(token, limits.guesses), hosts=hosts, read_only=read_only, limits=limits)
    handle(app)
    for part in (about, runs, live, requests, explaining, training_logs, metrics, files):
        app.include_router(part.router)
    return app
