"""What the command line says when it was given something that cannot be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

import typer


def stop(problem: str, given: str = "", known: Iterable[str] = (), hint: str = "") -> NoReturn:
    """Says on stderr what is wrong, what was perhaps meant and what helps, and exits with 2."""
    typer.echo(f"seismograd: {problem}{_meant(given, known)}" + (f" ({hint})" if hint else ""), err=True)
    raise typer.Exit(2)


def warn(problem: str, given: str = "", known: Iterable[str] = ()) -> None:
    """Says on stderr what is wrong, and what was perhaps meant."""
    typer.echo(f"seismograd: {problem}{_meant(given, known)}", err=True)


def _meant(given: str, known: Iterable[str]) -> str:
    near = get_close_matches(given, list(known), n=3, cutoff=0.5)
    return f", did you mean {' or '.join(near)}?" if near else ""
