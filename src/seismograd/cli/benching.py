"""`seismograd bench`: what makes a training faster and leaves what it learns as it is."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seismograd.cli.mistakes import stop, writable
from seismograd.cli.named import called, named
from seismograd.cli.stores import terminal

if TYPE_CHECKING:
    from seismograd.optimize.tuning.tuned import Tuning

_RETURNS = "model, batches, loss_fn, optimizer"


def bench(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help=f"What returns {_RETURNS}: train.py:make, package.training:make. It is called without arguments.",
        ),
    ],
    seconds: Annotated[float, typer.Option(min=1.0, help="About how long to try; compiling may take longer.")] = 60.0,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything, as JSON, to this file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plot, a page of its own, to this file.")
    ] = None,
) -> None:
    """Find which optimisation is fastest with the loss still right: a table, and the lines to paste.

    Tries mixed precision, torch.compile, gradient checkpointing, memory layout, optimizers, threads and the loader, one
    by one and together, each against your loop as it is. Ctrl-C shows what is known by then.

    Example: seismograd bench train.py:make --seconds 120
    """
    files = (None if as_json is None else writable(as_json), None if html is None else writable(html, "the page"))
    from seismograd.optimize.tuning import tune

    with contextlib.redirect_stdout(sys.stderr):  # what user code prints is not the result
        model, batches, loss_fn, optimizer = _four(function)
        try:
            tuning = tune(model, batches, loss_fn, optimizer, seconds=seconds)
        except (TypeError, ValueError) as error:
            stop(f"{function!r}: {error}")
        except Exception as error:
            stop(f"a step of {function!r} raised {type(error).__name__}: {error}")
    terminal().print(tuning)
    _write(tuning, *files)
    if tuning.stopped:
        raise typer.Exit(130)


def _four(function: str) -> tuple[Any, Any, Any, Any]:
    found = named(function, "MODULE:FUNCTION", "function", "train.py:make or package.training:make")
    if not callable(found):
        stop(f"{function!r} is {found!r}: give a function that returns {_RETURNS}")
    made = called(found, function, f"give a function without any that returns {_RETURNS}")
    if not isinstance(made, tuple | list) or len(made) != 4:
        length = f" of {len(made)}" if isinstance(made, tuple | list) else ""
        stop(f"{function!r} returned a {type(made).__name__}{length}: it has to return {_RETURNS}")
    return made[0], made[1], made[2], made[3]


def _write(tuning: Tuning, as_json: Path | None, html: Path | None) -> None:
    if as_json is not None:
        text = json.dumps({"schema": 1, **tuning.to_dict()}, indent=2, allow_nan=False)
        as_json.write_text(text + "\n", encoding="utf-8")
        typer.echo(f"written to {as_json}", err=True)
    if html is not None:
        tuning.plot(html)
        typer.echo(f"written to {html}", err=True)
