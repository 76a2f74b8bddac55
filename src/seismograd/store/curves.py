"""Scalars over steps at any resolution: low, high, mean and last of each span are kept, so no spike disappears."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seismograd.store.codec import Blob, Floats, Ints, columns, pack, undamaged

FACTOR = 8
"""So many buckets become one of the next level."""


_TABLES = ("low", "high", "mean", "final", "count", "bad")


@dataclass(frozen=True, slots=True)
class Series:
    """One scalar over steps. Each point stands for the steps `first` to `steps`; at full rate they are the same."""

    name: str
    first: Ints
    steps: Ints
    low: Floats
    """Of the values that were finite; NaN where none was. So are `high` and `mean`."""
    high: Floats
    mean: Floats
    last: Floats
    """As it was, finite or not."""
    count: Ints
    bad: Ints
    """How many of them were not finite."""
    times: Floats
    """When the last of them came, in seconds since 1970."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def width(self) -> int:
        """The most steps that a point stands for: 1 at full rate."""
        return int((self.steps - self.first).max(initial=0)) + 1


@dataclass(frozen=True, slots=True)
class Buckets:
    """Some scalars over the same spans of steps: a row for each name, a column for each span."""

    names: tuple[str, ...]
    first: Ints
    last: Ints
    times: Floats
    low: Floats
    high: Floats
    mean: Floats
    final: Floats
    count: Ints
    bad: Ints

    def __len__(self) -> int:
        return len(self.first)

    def part(self, start: int, stop: int) -> Buckets:
        """The columns `start` to `stop`."""
        return self._cut(slice(start, stop))

    def within(self, start: int, stop: int) -> Buckets:
        """The spans that have to do with the steps `start` to `stop`."""
        return self._cut((self.last >= start) & (self.first <= stop))

    def _cut(self, which: slice | NDArray[np.bool_] | NDArray[np.intp]) -> Buckets:
        tables = {field: getattr(self, field)[:, which] for field in _TABLES}
        return Buckets(self.names, self.first[which], self.last[which], self.times[which], **tables)

    def in_order(self) -> Buckets:
        """The columns in the order of their steps: what several ranks tell together comes later than its step."""
        if len(self) < 2 or (self.first[1:] >= self.first[:-1]).all():
            return self
        return self._cut(np.argsort(self.first, kind="stable"))

    def folded(self, width: int) -> Buckets:
        """Neighbours whose first steps lie in the same span of `width` steps become one."""
        return self._grouped(np.flatnonzero(np.diff(self.first // width, prepend=-1)) if len(self) else None)

    def thinned(self, points: int) -> Buckets:
        """At most so many columns: equal numbers of neighbours become one."""
        if len(self) <= points:
            return self
        return self._grouped(np.arange(0, len(self), -(-len(self) // points)))

    def _grouped(self, starts: NDArray[np.intp] | None) -> Buckets:
        if starts is None or len(starts) == len(self):
            return self
        ends = np.append(starts[1:], len(self)) - 1
        count, bad = (np.add.reduceat(array, starts, axis=1) for array in (self.count, self.bad))
        good = self.count - self.bad
        with np.errstate(all="ignore"):
            low = np.minimum.reduceat(np.where(good > 0, self.low, np.inf), starts, axis=1)
            high = np.maximum.reduceat(np.where(good > 0, self.high, -np.inf), starts, axis=1)
            share = good / np.maximum(np.repeat(np.add.reduceat(good, starts, axis=1), ends - starts + 1, axis=1), 1)
            mean = np.add.reduceat(np.where(good > 0, self.mean * share, 0.0), starts, axis=1)
        none = count == bad
        low, high, mean = (np.where(none, np.nan, array) for array in (low, high, mean))
        latest = np.maximum.reduceat(np.where(self.count > 0, np.arange(len(self)), -1), starts, axis=1)
        final = np.where(latest < 0, np.nan, np.take_along_axis(self.final, np.maximum(latest, 0), axis=1))
        last, times = (np.maximum.reduceat(array, starts) for array in (self.last, self.times))
        return Buckets(self.names, self.first[starts], last, times, low, high, mean, final, count, bad)

    def series(self, name: str) -> Series:
        """The points of one scalar; spans in which it was not read are left out."""
        row = self.names.index(name)
        there = self.count[row] > 0
        low, high, mean, final, count, bad = (getattr(self, field)[row, there] for field in _TABLES)
        return Series(name, self.first[there], self.last[there], low, high, mean, final, count, bad, self.times[there])

    # -- as bytes ------------------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        arrays: dict[str, NDArray[Any]] = {"first": self.first, "last": self.last, "time": self.times}
        for row in range(len(self.names)):
            arrays[f"v{row}"] = np.stack([array[row] for array in (self.low, self.high, self.mean, self.final)])
            arrays[f"n{row}"] = np.stack([self.count[row], self.bad[row]]).astype(np.int32)
        return pack({"names": self.names}, arrays)

    @classmethod
    @undamaged
    def unpack(cls, data: bytes, wanted: Sequence[str] | None = None) -> Buckets:
        blob = Blob(data)
        every: list[str] = blob.head["names"]
        names = tuple(name for name in every if wanted is None or name in wanted)
        first, last, times = (blob.array(part) for part in ("first", "last", "time"))
        if not names:
            return cls.empty((), first, last, times)
        rows = [every.index(name) for name in names]
        low, high, mean, final = np.stack([blob.array(f"v{row}") for row in rows], axis=1)
        count, bad = np.stack([blob.array(f"n{row}") for row in rows], axis=1).astype(np.int64)
        return cls(names, first, last, times, low, high, mean, final, count, bad)

    @classmethod
    def empty(cls, names: Sequence[str], first: Ints, last: Ints, times: Floats) -> Buckets:
        """Spans in which nothing was read."""
        shape = (len(names), len(first))
        nothing, none = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
        return cls(tuple(names), first, last, times, nothing, nothing, nothing, nothing, none, none)

    @classmethod
    @undamaged
    def of_readings(cls, scalars: bytes, wanted: Sequence[str] | None = None) -> Buckets:
        """Encoded readings at full rate: a column for each."""
        blob = Blob(scalars)
        step, times = blob.array("step"), blob.array("time")
        found = columns(blob, wanted)
        final = np.full((len(found), len(step)), np.nan)
        count = np.zeros(final.shape, dtype=np.int64)
        for row, (_, places, values) in enumerate(found):
            final[row, places] = values
            count[row, places] = 1
        finite = np.isfinite(final)
        value = np.where(finite, final, np.nan)
        bad = count * ~finite
        names = tuple(name for name, _, _ in found)
        return cls(names, step, step, times, value, value, value, final, count, bad).in_order()


def joined(parts: Iterable[Buckets]) -> Buckets:
    """The parts in the order of their steps; a name that a part does not have was not read there."""
    parts = [part for part in parts if len(part)]
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Buckets.empty((), none, none, np.zeros(0))
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    aligned = [part if part.names == names else _aligned(part, names) for part in parts]
    first, last, times = (
        np.concatenate([getattr(part, field) for part in aligned]) for field in ("first", "last", "times")
    )
    tables = {field: np.concatenate([getattr(part, field) for part in aligned], axis=1) for field in _TABLES}
    return Buckets(names, first, last, times, **tables).in_order()


def _aligned(part: Buckets, names: tuple[str, ...]) -> Buckets:
    blank = Buckets.empty(names, part.first, part.last, part.times)
    rows = [names.index(name) for name in part.names]
    tables = {}
    for field in _TABLES:
        table = getattr(blank, field).copy()
        table[rows] = getattr(part, field)
        tables[field] = table
    return Buckets(names, part.first, part.last, part.times, **tables)
