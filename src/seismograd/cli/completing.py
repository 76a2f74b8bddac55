"""What a shell is told when the user presses Tab. It never fails: what cannot be known is not offered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from seismograd.cli.mistakes import all_ids

MOST = 50
"""Runs that are offered, the newest."""


def runs_known(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """The runs of the store that is named on the line, or of the usual one: their ids, `last`, their names."""
    found = [("last", "the newest")]
    try:
        from seismograd.store import open_store
        from seismograd.store.store import place

        with open_store(place(ctx.params.get("store"))) as store:
            runs = store.runs(MOST)
        found += [(run.id, f"{run.name}, {run.status}, {run.steps:,} steps") for run in runs]
        if incomplete:
            found += [(name, "the newest of this name") for name in dict.fromkeys(run.name for run in runs)]
    except Exception:  # there is no store, or it cannot be opened: a shell has no place for an error
        pass
    return [(name, about) for name, about in found if name.startswith(incomplete)]


def findings_known(incomplete: str) -> list[str]:
    """The ids of findings."""
    return [name for name in sorted(all_ids()) if name.startswith(incomplete)]


def ignored_known(incomplete: str) -> Iterable[str]:
    """The ids of findings, the last of a list that is parted by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in findings_known(last)]


def sinks_known(incomplete: str) -> list[str]:
    """The names of sinks. What stands behind one is not offered: bash takes the colon for the end of a word."""
    from seismograd.sinks.named import KINDS

    return [name for name in KINDS if name.startswith(incomplete)]


def demos_known(incomplete: str) -> list[tuple[str, str]]:
    """The demos, with the first line of each."""
    from seismograd.cli.demos import gallery

    return [(each.name, each.title) for each in gallery().values() if each.name.startswith(incomplete)]
