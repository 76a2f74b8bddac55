"""One scalar over all ranks of a run: at each point of a grid of steps the lowest, the quartiles, the highest; and who.

However many ranks there are, what is read and what is told of them is bounded: of very many the gravest are read, as
their last words say, and others evenly spread between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seismograd.reports.ranks import Side, gravest_first

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

READ = 256
"""So many ranks are read of very many."""
FAR = 4.0
"""A rank that is farther from the others' median than so many times their spread, on the whole, stands out."""
_LEAST = 0.02
"""Of the median: a smaller spread does not make anybody stand out."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of a scalar: a row for each rank, a column for each point, NaN where nothing finite was read."""

    name: str
    ranks: Ints
    first: Ints
    steps: Ints
    """The first and the last step that a point may stand for."""
    values: Floats
    bad: Ints
    """How many values were not finite."""

    def told(self) -> dict[str, Any]:
        """The summary, in columns; None where nobody has a value."""
        there = np.isfinite(self.values)
        some: NDArray[np.bool_] = np.any(there, axis=0)
        columns: dict[str, Any] = {"first": self.first.tolist(), "steps": self.steps.tolist()}
        filled = np.where(some, np.where(there, self.values, np.nan), 0.0)  # no warning of empty columns
        for name, level in (("low", 0), ("q1", 25), ("median", 50), ("q3", 75), ("high", 100)):
            found = np.nanpercentile(filled, level, axis=0) if filled.size else np.zeros(len(self.steps))
            columns[name] = np.where(some, found, np.nan).tolist()
        low = np.where(there, self.values, np.inf).argmin(axis=0)
        high = np.where(there, self.values, -np.inf).argmax(axis=0)
        for name, at in (("low_who", low), ("high_who", high)):
            columns[name] = [
                int(self.ranks[place]) if has else None for place, has in zip(at.tolist(), some.tolist(), strict=True)
            ]
        columns["count"] = there.sum(axis=0).tolist()
        columns["bad"] = self.bad.sum(axis=0).tolist()
        return columns

    def outliers(self, most: int = 4) -> list[int]:
        """The ranks that stand out, the farthest first: those that were not finite, and those far from the median."""
        if len(self.ranks) < 3 or not self.values.size:
            return []
        there = np.isfinite(self.values)
        usable = there.sum(axis=0) >= 3
        distance = np.zeros(len(self.ranks))
        if usable.any():
            values = np.where(there, self.values, np.nan)[:, usable]
            q1, median, q3 = np.nanpercentile(values, (25, 50, 75), axis=0)
            least = np.maximum(q3 - q1, np.maximum(_LEAST * np.abs(median), 1e-12))
            far = (values - median) / least
            for way in (far, -far):  # on the whole, and for long: the mean of what is on one side
                distance = np.maximum(distance, np.nan_to_num(_quarter(way)))
        distance = np.where((self.bad > 0).any(axis=1), np.inf, distance)
        order = sorted(range(len(distance)), key=lambda at: (-distance[at], self.ranks[at]))
        return [int(self.ranks[at]) for at in order[:most] if distance[at] > FAR]


def _quarter(far: Floats) -> Floats:
    """How far each is at a quarter of the points at least."""
    rows = np.full(len(far), np.nan)
    some = np.isfinite(far).any(axis=1)
    if some.any():
        rows[some] = np.nanpercentile(far[some], 75, axis=1)
    return rows


def across(
    run: Any,
    names: Sequence[str],
    ranks: Iterable[int],
    *,
    start: int | None = None,
    stop: int | None = None,
    points: int = 200,
) -> dict[str, Spread]:
    """These scalars of some ranks of a stored run on one grid of steps; what none of them has is left out."""
    found: dict[str, dict[int, Any]] = {}
    for rank in ranks:
        for name, series in run.series(names, start, stop, points=points, rank=rank).items():
            found.setdefault(name, {})[rank] = series
    return {name: _spread(name, found[name], points) for name in names if name in found}


def _spread(name: str, series: Mapping[int, Any], points: int) -> Spread:
    low = min(int(each.first[0]) for each in series.values())
    high = max(int(each.steps[-1]) for each in series.values())
    every = max(*(int(each.width) for each in series.values()), -(-(high - low + 1) // points), 1)
    size = (high - low) // every + 1
    total = np.zeros((len(series), size))
    weight, bad = np.zeros((len(series), size), np.int64), np.zeros((len(series), size), np.int64)
    for row, each in enumerate(series.values()):
        place = (np.asarray(each.steps, np.int64) - low) // every
        good = np.where(np.isfinite(each.mean), np.asarray(each.count) - np.asarray(each.bad), 0)
        np.add.at(total[row], place, np.where(good > 0, np.nan_to_num(each.mean) * good, 0.0))
        np.add.at(weight[row], place, good)
        np.add.at(bad[row], place, np.asarray(each.bad, np.int64))
    values = np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)
    read = ((weight + bad) > 0).any(axis=0)  # what is read every few steps leaves no holes
    first = low + np.arange(size, dtype=np.int64) * every
    steps = np.minimum(first + every - 1, high)
    ranks = np.fromiter(series, np.int64, len(series))
    return Spread(name, ranks, first[read], steps[read], values[:, read], bad[:, read])


def chosen(ranks: Sequence[int], sides: Sequence[Side], most: int = READ) -> list[int]:
    """All ranks, or of very many the gravest and others evenly spread, in their order."""
    if len(ranks) <= most:
        return list(ranks)
    known = set(ranks)
    grave = [int(side["rank"]) for side in gravest_first(sides) if side["rank"] in known][: most // 4]
    rest = [rank for rank in ranks if rank not in set(grave)]
    picked = np.linspace(0, len(rest) - 1, most - len(grave)).round().astype(int)
    return sorted({*grave, *(rest[at] for at in picked.tolist())})
