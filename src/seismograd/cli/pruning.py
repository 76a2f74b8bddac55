"""`seismograd prune`: old runs go, with what was saved of their steps, and the disk gets its space back."""

from __future__ import annotations

import re
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seismograd.cli.mistakes import stop
from seismograd.cli.stores import AsJson, Where, opened, say_json, state_of

if TYPE_CHECKING:
    from seismograd.store import Run, Store

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "k": 1 << 10, "mb": 1 << 20, "m": 1 << 20, "gb": 1 << 30, "g": 1 << 30}


def prune(
    which: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Runs: an id, how it begins, a name.", show_default=False),
    ] = None,
    days: Annotated[
        float | None, typer.Option(min=0.0, help="Runs that ended more than so many days ago.", show_default=False)
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="All but the newest N.", show_default=False)
    ] = None,
    larger_than: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Runs that take more: 100MB, 1GB.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: Where = None,
    as_json: AsJson = False,
) -> None:
    """Remove runs from the store, with their saved steps, and give the space back.

    Named runs, or those that fit all of --days, --keep and --larger-than. A run that goes on is never removed.

    Example: seismograd prune --days 30 --keep 10
    """
    from seismograd.amounts import size

    least = None if larger_than is None else _bytes(larger_than)
    if which and any(given is not None for given in (days, keep, larger_than)):
        stop("name runs, or say which with --days, --keep and --larger-than, not both")
    if not which and days is None and keep is None and least is None:
        stop(
            "say which runs are to go", hint="RUN, --days 30, --keep 10 or --larger-than 1GB; --dry-run only shows them"
        )
    with opened(store) as found:
        chosen = _named(found, which) if which else _old(found, days, keep, least)
        live = [run for run in chosen if run.live]
        gone = [run for run in chosen if not run.live]
        if which and live:
            stop(f"{live[0].id} goes on: stop it first")
        folders = {run.id: folder for run in gone if (folder := _folder(found, run)) is not None}
        sizes = {run.id: _takes(found, run) for run in gone}
        told = {
            "store": found.shown,
            "dry_run": dry_run,
            "runs": [{"id": run.id, "name": run.name, "state": state_of(run), "bytes": sizes[run.id]} for run in gone],
            "live": [run.id for run in live],
        }
        total = sum(sizes.values())
        if not as_json:
            _say(gone, live, sizes)
        if dry_run or not gone:
            if as_json:
                say_json({**told, "freed": 0})
            elif gone:
                typer.echo(f"{_many(gone)} would go, about {size(total)}")
            return
        if not yes:
            _ask(f"remove {_many(gone)}, about {size(total)}?")
        freed = _removed(found, gone, folders)
    if as_json:
        say_json({**told, "freed": freed})
    else:
        typer.echo(f"{_many(gone)} removed, {size(freed)} freed")


def _bytes(text: str) -> int:
    """`1.5GB` in bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        stop(f"--larger-than {text!r} is no size: write it as 500kB, 100MB or 1.5GB")
    return int(float(match[1]) * _UNITS[match[2]])


def _named(store: Store, which: list[str]) -> list[Run]:
    return list({run.id: run for run in map(store.run, which)}.values())


def _old(store: Store, days: float | None, keep: int | None, least: int | None) -> list[Run]:
    """The runs that fit everything that was said, newest first."""
    before = None if days is None else datetime.now(UTC) - timedelta(days=min(days, 1e5))
    return [
        run
        for run in store.runs()[keep or 0 :]
        if (before is None or (run.ended or run.heartbeat) < before) and (least is None or _takes(store, run) > least)
    ]


def _folder(store: Store, run: Run) -> Path | None:
    """The folder of the run's saved steps, if it lies where the store has them."""
    if store.home is None or not run.id or Path(run.id).name != run.id or run.id in (".", ".."):
        return None
    folder = store.home / run.id
    return folder if folder.is_dir() and not folder.is_symlink() else None


def _takes(store: Store, run: Run) -> int:
    """Its bytes in the store, and those of its saved steps."""
    folder = _folder(store, run)
    return int(run.bytes) + (0 if folder is None else _weight(folder))


def _weight(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _removed(store: Store, runs: list[Run], folders: dict[str, Path]) -> int:
    """Removes them, and says how many bytes the disk got back."""
    from seismograd.store.space import give_back, taken

    before, freed = taken(store), 0
    for run in runs:
        folder = folders.get(run.id)
        weight = 0 if folder is None else _weight(folder)
        store.delete(run.id)
        if folder is not None:
            try:
                shutil.rmtree(folder)
                freed += weight
            except OSError as error:
                typer.echo(f"seismograd: {folder} could not be removed: {error.strerror or error}", err=True)
    give_back(store)
    return freed + max(0, before - taken(store))


def _say(gone: list[Run], live: list[Run], sizes: dict[str, int]) -> None:
    from seismograd.amounts import size
    from seismograd.cli.overview import plain

    for run in gone:
        weight = size(sizes[run.id])
        typer.echo(f"{plain(run.id)}  {run.started.astimezone():%Y-%m-%d %H:%M}  {weight:>8}  {plain(run.name)}")
    for run in live:
        typer.echo(f"{plain(run.id)} goes on and stays")
    if not gone:
        typer.echo("there is nothing to remove")


def _many(runs: list[Run]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) != 1)}"


def _ask(question: str) -> None:
    """Asks on the terminal; where there is none nothing goes."""
    if not _is_asked():
        stop("nobody can be asked here", hint="--yes removes without asking, --dry-run only shows")
    typer.confirm(question, abort=True, err=True)


def _is_asked() -> bool:
    """Whether somebody sits there."""
    return sys.stdin.isatty()
