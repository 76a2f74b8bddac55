"""Tensor statistics over steps, thinned with age: of neighbours each layer keeps its greatest value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seismograd.store.codec import Blob, Floats, Ints, pack, tables_of, undamaged

_UNREAD = -np.inf
"""Stands for what was not read while tables are put together: everything is greater, but for NaN, which stays NaN."""

_UNDEFINED = ("ratio", "gain", "dead", "saturated")
"""Where NaN says that there is no such value, not that it went bad."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Heat:
    """One measure of every layer over steps, as a heat map shows it."""

    kind: str
    column: str
    names: tuple[str, ...]
    steps: Ints
    values: Floats
    """A row for each name: NaN where it was not read, infinite where it was not finite."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Tables at some steps: for each kind and column an array with a row for each name."""

    first: Ints
    last: Ints
    names: dict[str, tuple[str, ...]]
    values: dict[Key, NDArray[np.float32]]

    def __len__(self) -> int:
        return len(self.first)

    def folded(self, gap: int) -> Samples:
        """Those whose first steps lie in the same span of `gap` steps become one."""
        if len(self) < 2:
            return self
        starts = np.flatnonzero(np.diff(self.first // gap, prepend=-1))
        return self._grouped(starts)

    def thinned(self, most: int) -> Samples:
        """At most so many: equal numbers of neighbours become one."""
        if len(self) <= most:
            return self
        return self._grouped(np.arange(0, len(self), -(-len(self) // most)))

    def spread(self, most: int) -> Samples:
        """At most so many, each for as many steps as the others: the new is kept finer, and would crowd out the old."""
        if len(self) <= most:
            return self
        length = int(self.last[-1] - self.first[0]) + 1
        return self.folded(-(-length // max(1, most - 1))).thinned(most)

    def _grouped(self, starts: NDArray[np.intp]) -> Samples:
        if len(starts) == len(self):
            return self
        ends = np.append(starts[1:], len(self)) - 1
        with np.errstate(invalid="ignore"):
            values = {key: np.maximum.reduceat(table, starts, axis=1) for key, table in self.values.items()}
        return Samples(self.first[starts], self.last[ends], self.names, values)

    def part(self, start: int, stop: int) -> Samples:
        values = {key: table[:, start:stop] for key, table in self.values.items()}
        return Samples(self.first[start:stop], self.last[start:stop], self.names, values)

    def within(self, start: int, stop: int) -> Samples:
        inside = (self.last >= start) & (self.first <= stop)
        values = {key: table[:, inside] for key, table in self.values.items()}
        return Samples(self.first[inside], self.last[inside], self.names, values)

    def heat(self, kind: str, column: str) -> Heat:
        table = self.values.get((kind, column))
        if table is None:
            return Heat(kind, column, (), np.zeros(0, np.int64), np.zeros((0, 0)))
        values = table.astype(np.float64)
        values = np.where(np.isnan(values), np.inf, np.where(values == _UNREAD, np.nan, values))
        there = ~np.isnan(values).all(axis=0)
        return Heat(kind, column, self.names[kind], self.last[there], values[:, there])

    def pack(self) -> bytes:
        arrays: dict[str, NDArray[Any]] = {"first": self.first, "last": self.last}
        keys = list(self.values)
        arrays |= {f"t{number}": self.values[key] for number, key in enumerate(keys)}
        return pack({"names": self.names, "keys": keys}, arrays)

    @classmethod
    @undamaged
    def unpack(cls, data: bytes, wanted: Key | None = None) -> Samples:
        blob = Blob(data)
        keys = [(kind, column) for kind, column in blob.head["keys"]]
        values = {key: blob.array(f"t{at}") for at, key in enumerate(keys) if wanted is None or key == wanted}
        names = {kind: tuple(names) for kind, names in blob.head["names"].items()}
        return cls(blob.array("first"), blob.array("last"), names, values)

    @classmethod
    @undamaged
    def of_readings(cls, steps: Ints, tables: bytes, wanted: Key | None = None, gap: int = 1) -> Samples:
        """Encoded tables; `steps` are those of the readings. Those within the same span of `gap` steps become one."""
        kind, column = wanted or (None, None)
        parts = []
        for found, names, places, table in tables_of(Blob(tables), kind, column):
            at = steps[places]
            starts = np.flatnonzero(np.diff(at // gap, prepend=at[0] // gap - 1))
            ends = np.append(starts[1:], len(at)) - 1
            values = {(found, measure): _entered(measure, block, starts) for measure, block in table.items()}
            parts.append(cls(at[starts], at[ends], {found: names}, values))
        return joined_samples(parts).folded(gap)


def _entered(measure: str, block: Floats, starts: NDArray[np.intp]) -> NDArray[np.float32]:
    if measure in _UNDEFINED:
        block = np.where(np.isnan(block), _UNREAD, block)
    with np.errstate(over="ignore", invalid="ignore"):
        if len(starts) < len(block):
            block = np.maximum.reduceat(block, starts, axis=0)
        return np.ascontiguousarray(block.T.astype(np.float32))


def joined_samples(parts: Sequence[Samples]) -> Samples:
    """The parts in the order of their steps; what a part does not have was not read there."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return Samples(np.zeros(0, np.int64), np.zeros(0, np.int64), {}, {})
    names: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for kind, own in part.names.items():
            known = names.get(kind)
            names[kind] = own if known is None or known == own else tuple(dict.fromkeys((*known, *own)))
    keys = dict.fromkeys(key for part in parts for key in part.values)
    values = {key: np.concatenate([_of(part, key, names[key[0]]) for part in parts], axis=1) for key in keys}
    first, last = (np.concatenate([getattr(part, field) for part in parts]) for field in ("first", "last"))
    order = np.argsort(first, kind="stable")
    return Samples(first[order], last[order], names, {key: table[:, order] for key, table in values.items()})


def _of(part: Samples, key: Key, names: tuple[str, ...]) -> NDArray[np.float32]:
    table = part.values.get(key)
    own = part.names.get(key[0], ())
    if table is not None and own == names:
        return table
    full = np.full((len(names), len(part)), _UNREAD, dtype=np.float32)
    if table is not None:
        place = {name: row for row, name in enumerate(names)}
        full[[place[name] for name in own]] = table
    return full


def columns_of(parts: Iterable[Samples]) -> dict[str, list[str]]:
    """The kinds of tables and their columns."""
    found: dict[str, list[str]] = {}
    for part in parts:
        for kind, column in part.values:
            if column not in found.setdefault(kind, []):
                found[kind].append(column)
    return found
