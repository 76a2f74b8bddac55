"""The tools that change something; they are there only if the server was started with `--allow-changes`."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from mcp.types import CallToolResult
from pydantic import Field

from seismograd.mcp_server import shapes
from seismograd.mcp_server.answering import answer, said
from seismograd.mcp_server.questions import Which
from seismograd.server.models import Wish
from seismograd.server.requests import ask, checked
from seismograd.server.runs import forget
from seismograd.server.shelf import Shelf

_WAITS = 5.0
"""Seconds for the run to answer: it looks for requests about once a second."""


class Changes:
    """What can be asked of a live run, and what can be done to a store."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    @said
    def ask_run(
        self,
        run: Which,
        kind: Annotated[
            Literal["level", "budget", "capture", "stop", "trace"],
            Field(
                description="level: read more or less; budget: the share of the time it may take; capture: save the "
                "next step, to be replayed; stop: end the training after its step; trace: profile some steps"
            ),
        ],
        value: Annotated[
            str | float | None,
            Field(description="level: 'basic', 'advanced', 'extreme'; budget: 0 to 1; trace: steps; else null"),
        ] = None,
    ) -> Annotated[CallToolResult, shapes.Asked]:
        """Ask a live run for something, and wait a few seconds for its answer. Stopping ends the user's training: ask
        them first."""
        one = self._shelf.run(run)
        number = ask(one, kind, checked(Wish(kind=kind, value=value)))["id"]
        deadline = time.monotonic() + _WAITS
        while True:
            told = next(each for each in one.requests() if each["id"] == number)
            if told["answer"] is not None or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        answered = told["answer"]
        text = answered or "it has not answered yet: its process takes requests at the end of a step"
        data = {"run": one.id, "kind": kind, "taken": told["taken"], "answer": None if answered is None else str(text)}
        return answer(f"{one.id}, {kind}: {text}", data)

    @said
    def delete_run(
        self,
        run: Annotated[str, Field(max_length=64, description="The whole id of a run that is over.")],
    ) -> Annotated[CallToolResult, shapes.Deleted]:
        """Forget a run: everything recorded of it is deleted, for good. Ask the user first."""
        forget(self._shelf, run)
        return answer(f"{run} was deleted", {"run": run})
