"""What the command line says when it was given something that cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

import typer

import seismograd
from seismograd.records import WITHOUT_DETECTOR


def stop(problem: str, given: str = "", known: Iterable[str] = (), hint: str = "") -> NoReturn:
    """Says on stderr what is wrong, what was perhaps meant and what helps, and exits with 2."""
    typer.echo(f"seismograd: {problem}{_meant(given, known)}" + (f" ({hint})" if hint else ""), err=True)
    raise typer.Exit(2)


def warn(problem: str, given: str = "", known: Iterable[str] = ()) -> None:
    """Says on stderr what is wrong, and what was perhaps meant."""
    typer.echo(f"seismograd: {problem}{_meant(given, known)}", err=True)


def writable(report: Path, what: str = "the report") -> Path:
    """The whole path of the report, wherever the script goes; what is in the way is said before it starts."""
    path = Path(os.path.abspath(report))
    folder = path.parent
    try:
        if path.is_dir():
            stop(f"{what} cannot be written to {str(report)!r}: it is a folder, give a file")
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(path if path.exists() else folder, os.W_OK):
            stop(f"{what} cannot be written to {str(report)!r}: permission denied")
    except OSError as error:
        stop(f"{what} cannot be written to {str(report)!r}: {error.strerror or error}")
    return path


def store_named(store: str | None) -> str | None:
    """The store as it was given; an empty one is a variable of the shell that was not set."""
    if store == "":
        stop("--store is empty: give a folder, a .db file or a postgresql:// address, or leave it out")
    return store


def known_ids(given: Iterable[str]) -> tuple[str, ...]:
    """The ids among those given; no detector is imported for that."""
    known = all_ids()
    ids = [word.strip() for words in given for word in words.split(",") if word.strip()]
    for wrong in [word for word in ids if word not in known]:
        warn(f"--ignore {wrong} names no finding", wrong, known)
    return tuple(word for word in ids if word in known)


def all_ids() -> set[str]:
    """Every finding's id: the names of the files that hold a detector."""
    home = Path(seismograd.__file__).parent / "detectors"
    files = [path for path in home.glob("*/*.py") if "id: ClassVar[str]" in path.read_text(encoding="utf-8")]
    return {path.stem.replace("_", "-") for path in files} | {*WITHOUT_DETECTOR}


def _meant(given: str, known: Iterable[str]) -> str:
    near = get_close_matches(given, list(known), n=3, cutoff=0.5)
    return f", did you mean {' or '.join(near)}?" if near else ""
