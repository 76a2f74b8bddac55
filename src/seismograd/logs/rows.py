"""Logs of rows: which column is the step, which says of which data a row is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from seismograd.logs.log import Entry, LogError, listed
from seismograd.logs.names import side_word

_STEPS = (
    *("global_step", "trainer/global_step", "train/global_step", "step", "_step", "steps", "iteration", "iterations"),
    *("iter", "it", "update", "num_updates", "batch", "index", "epoch", "train/epoch"),
)
_OTHER_STEPS = frozenset(_STEPS) - {"epoch", "train/epoch", "batch", "update"}
"""What numbers rows too, and is nothing that was measured."""
_TIMES = ("time", "timestamp", "_timestamp", "wall_time", "walltime")
_SIDES = ("mode", "split", "phase", "stage", "subset", "type", "kind")
_BESIDE = frozenset(("epoch", "train/epoch", "rank", "series"))
"""Columns that say where a row stands, and measure nothing."""


def step_column(names: Iterable[str], asked: str | None = None) -> str:
    """The column of steps: as asked, else the first that is usually called so; empty if rows are to be counted."""
    known = list(names)
    if asked is not None:
        if asked not in known:
            raise LogError(f"step={asked!r} is no column of the log: it has {listed(known)}")
        return asked
    small = {name.lower(): name for name in reversed(known)}
    return next((small[name] for name in _STEPS if name in small), "")


def side_column(rows: Iterable[Mapping[str, Any]]) -> str:
    """The column that tells rows of training from those of validation, as `mode` or `split`; empty if there is none."""
    found: dict[str, set[str | None]] = {}
    for row in rows:
        for name, value in row.items():
            if name.lower() in _SIDES:
                found.setdefault(name, set()).add(side_word(value))
    return next((name for name, words in found.items() if "train" in words and words & {"val", "test"}), "")


def entry_of(values: Mapping[str, float], steps: str, side: str | None = None) -> Entry | None:
    """A row as an entry; `None` if it has nothing but where it stands. `side` is whose it is, if not the training's."""
    before = f"{side}/" if side in ("val", "test") else ""
    time = next((value for name, value in values.items() if name.lower() in _TIMES and 1e9 < value < 1e11), None)
    step = values.get(steps)
    measured = {
        name if name.lower() in _BESIDE else before + name: value
        for name, value in values.items()
        if name != steps and name.lower() not in _TIMES and name.lower() not in _OTHER_STEPS
    }
    if all(name.lower() in _BESIDE for name in measured):
        return None
    return Entry(measured, step if step is not None and math.isfinite(step) else None, time)
