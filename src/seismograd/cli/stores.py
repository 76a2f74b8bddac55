"""How commands come to a store, to a run in it, and to what they write on."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seismograd.cli import completing
from seismograd.cli.mistakes import stop, store_named, warn
from seismograd.records import strict

if TYPE_CHECKING:
    from rich.console import Console

    from seismograd.store import Run, Store

Where = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        callback=store_named,
        help="The folder, .db file or postgresql:// address of the runs.",
        show_default="SEISMOGRAD_STORE, pyproject.toml, SEISMOGRAD_HOME or .seismograd",
    ),
]
Which = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="The run's id, how it begins, its name, or last.", autocompletion=completing.runs_known
    ),
]
Ignored = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID",
        help="A finding that is not to be reported; again for more, or a,b.",
        show_default=False,
        autocompletion=completing.ignored_known,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

_PIPE = 120
"""Columns, where there is no terminal that would say."""


@contextmanager
def opened(where: str | None) -> Iterator[Store]:
    """The store; what is wrong with it, or with the run that is asked for, is said in a line."""
    from seismograd.store import StoreError, open_store
    from seismograd.store.codec import DamagedError
    from seismograd.store.store import place

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with open_store(place(where)) as store:
                yield store
        except StoreError as error:
            stop(str(error))
        except DamagedError as error:
            stop(f"the store is damaged: {error}")
        finally:
            for text in dict.fromkeys(str(each.message) for each in told):
                warn(text)


def state_of(run: Run) -> str:
    """`live`, `ended` or `lost`."""
    return "live" if run.live else "lost" if run.lost else "ended"


def seconds_of(run: Run) -> float:
    """How long the run took, or takes so far."""
    return max(0.0, ((run.ended or run.heartbeat) - run.started).total_seconds())


def terminal() -> Console:
    """What is printed to: as wide as the terminal is, without colour where nobody sees it."""
    from seismograd.cli.plain_console import Plain

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else _PIPE
    return Plain(highlight=False, markup=False, emoji=False, width=width)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Says on a terminal what is being done while it takes its time; elsewhere nothing."""
    import rich.console

    console = rich.console.Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield


def say_json(told: dict[str, Any]) -> None:
    """Prints strict JSON."""
    typer.echo(json.dumps({"schema": 1, **strict(told)}, indent=2, allow_nan=False))
