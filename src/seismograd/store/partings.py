"""The first value in which two runs differ: of a scalar over the steps, and of the layers' tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seismograd.records import Reading, TensorStats
from seismograd.store.codec import Floats, Ints
from seismograd.store.curves import Series
from seismograd.store.spans import shared

if TYPE_CHECKING:
    from seismograd.store.run import Run

KINDS = ("parameter", "gradient", "update")
"""The tables in which layers are compared, causes first: the weights that went in, what came back, what was done."""

_MEASURES = ("norm", "max")
"""Columns that are told apart by more than rounding: a mean near zero is nothing but that."""

_SAMPLES = 100_000
"""More than a store keeps of a run: none of them is thinned further."""


@dataclass(frozen=True, slots=True)
class Parting:
    """A value in which two runs differ."""

    step: int
    quantity: str
    """`loss`; of a layer its table and column: `gradient/norm`."""
    values: tuple[float, float]
    rank: int = 0
    layer: str | None = None
    since: int | None = None
    """The last step before it at which both have the value and agree; what lies between is not known of both."""

    @property
    def relative(self) -> float:
        """The difference, relative to the larger of the two; infinite where one of them is not finite."""
        return float(relative(np.array([self.values[0]]), np.array([self.values[1]]))[0])

    def to_dict(self) -> dict[str, Any]:
        return {**{part.name: getattr(self, part.name) for part in fields(self)}, "relative": self.relative}


def relative(one: Floats, other: Floats) -> Floats:
    """How far apart the values are, relative to the larger; 0 for two NaN, infinite for one."""
    with np.errstate(all="ignore"):
        far = np.abs(one - other) / np.maximum(np.abs(one), np.abs(other))
    return np.where(equal(one, other), 0.0, np.where(np.isfinite(one) & np.isfinite(other), far, np.inf))


def equal(one: Floats, other: Floats) -> NDArray[np.bool_]:
    """Where the values are the same, bit for bit; NaN is NaN."""
    same: NDArray[np.bool_] = (one == other) | (np.isnan(one) & np.isnan(other))
    return same


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What still counts as the same."""

    rtol: float
    atol: float

    def holds(self, one: Floats, other: Floats) -> NDArray[np.bool_]:
        with np.errstate(all="ignore"):
            near = np.abs(one - other) <= self.atol + self.rtol * np.maximum(np.abs(one), np.abs(other))
        both = np.isfinite(one) & np.isfinite(other)
        result: NDArray[np.bool_] = equal(one, other) | (near & both)
        return result


class Track:
    """One scalar of one rank in both runs, at the points that both have."""

    def __init__(self, name: str, rank: int, one: Series, other: Series, tolerance: Tolerance) -> None:
        self.name, self.rank = name, rank
        mine, theirs, alike = _paired(one, other)
        self.first, self.steps = one.first[mine], one.steps[mine]
        self.values = one.last[mine], other.last[theirs]
        wide = alike & (self.first < self.steps)  # of single steps the value says it all
        pairs = [self.values, _unlike(one, mine, other, theirs, wide)]
        for field in ("low", "high"):
            ours, others = getattr(one, field)[mine], getattr(other, field)[theirs]
            pairs.append((np.where(wide, ours, 0.0), np.where(wide, others, 0.0)))
        self._pairs = pairs
        self.parted = self._first([~tolerance.holds(*pair) for pair in pairs])
        self.drifted = self._first([~equal(*pair) for pair in pairs])

    def __len__(self) -> int:
        return len(self.steps)

    def _first(self, differ: Sequence[NDArray[np.bool_]]) -> Parting | None:
        somewhere = np.flatnonzero(np.logical_or.reduce(differ))
        if not len(somewhere):
            return None
        at = int(somewhere[0])
        one, other = next(pair for pair, where in zip(self._pairs, differ, strict=True) if where[at])
        since = int(self.steps[at - 1]) if at else None
        return Parting(int(self.steps[at]), self.name, (float(one[at]), float(other[at])), self.rank, since=since)

    def apart(self, step: int) -> tuple[int, float] | None:
        """How far apart the runs are at the first point from `step` on."""
        at = int(np.searchsorted(self.steps, step))
        if at >= len(self.steps):
            return None
        one, other = self.values
        return int(self.steps[at]), float(relative(one[at : at + 1], other[at : at + 1])[0])


def _unlike(
    one: Series, mine: NDArray[np.intp], other: Series, theirs: NDArray[np.intp], wide: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """NaN for the run of which more values of a span were not finite, and the mean for the other; else the same."""
    more = one.bad[mine] - other.bad[theirs]
    ours = np.where(wide & (more > 0), np.nan, np.where(wide & (more < 0), one.mean[mine], 0.0))
    others = np.where(wide & (more < 0), np.nan, np.where(wide & (more > 0), other.mean[theirs], 0.0))
    return ours, others


def _paired(one: Series, other: Series) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
    """The places of the points that can be compared: of the same span, or whose last value is of the same step; and
    which of them are of the same span."""
    (mine, ours), (theirs, others) = _keys(one.steps, other.steps)
    _, a, b = np.intersect1d(ours, others, assume_unique=True, return_indices=True)
    a, b = mine[a], theirs[b]
    alike = (one.first[a] == other.first[b]) & (one.count[a] == other.count[b])
    known = alike | (_is_dense(one)[a] & _is_dense(other)[b])
    return a[known], b[known], alike[known]


def _keys(*every: Ints) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Of each run the points in the order of their steps, each with a number that is its own: a step may come again, as
    often as there are epochs where they begin anew with each."""
    known = np.unique(np.concatenate(every))
    orders = [np.argsort(steps, kind="stable") for steps in every]
    places = [np.searchsorted(known, steps[order]) for steps, order in zip(every, orders, strict=True)]
    again = [np.arange(len(place)) - np.searchsorted(place, place) for place in places]
    most = 1 + max(int(times.max(initial=0)) for times in again)
    return [(order, place * most + times) for order, place, times in zip(orders, places, again, strict=True)]


def _is_dense(series: Series) -> NDArray[np.bool_]:
    """Where the last value is that of the last step."""
    dense: NDArray[np.bool_] = series.count >= series.steps - series.first + 1
    return dense


class Layers:
    """Finds the first table in which a layer of two runs differs. `search` sets what it found."""

    def __init__(self, one: Run, other: Run, tolerance: Tolerance) -> None:
        self._runs, self._tolerance = (one, other), tolerance
        self.parted: Parting | None = None
        self.drifted: Parting | None = None
        self.layers = (0, 0)
        """How many differ at the parting, and of how many."""
        self.same_weights: int | None = None
        """The newest step up to the parting at which the weights were still the same."""
        self.compared = 0
        self.only: tuple[list[str], list[str]] = ([], [])
        """Layers that only one of the runs has."""

    def search(self, spans: Sequence[tuple[int, int]]) -> None:
        """Looks at every table of these steps until a layer is found that parts."""
        one, other = self._runs
        for rank in sorted(set(one.ranks) & set(other.ranks)):
            for start, stop in shared(spans, shared(one.whole, other.whole)):
                if self.parted is not None and self.parted.step < start:
                    break
                mine, theirs = (run.sheets(start, stop, rank) for run in self._runs)
                for pair in _merged(mine, theirs):
                    if self.parted is not None and pair[0].step >= self.parted.step:
                        break
                    self._compare(*pair)

    def search_thinned(self, rank: int) -> None:
        """Looks at what is left of the tables where they are not whole: of some steps each layer's greatest norm."""
        for kind in KINDS:
            one, other = (run.heat(kind, "norm", samples=_SAMPLES, rank=rank) for run in self._runs)
            mine, theirs = _same_samples(one.steps, other.steps)
            names = [name for name in one.names if name in set(other.names)]
            rows = [[heat.names.index(name) for name in names] for heat in (one, other)]
            values = [heat.values[own][:, at] for heat, own, at in zip((one, other), rows, (mine, theirs), strict=True)]
            differ = ~self._tolerance.holds(*values)
            columns = np.flatnonzero(differ.any(axis=0))
            if not len(columns):
                continue
            at = int(columns[0])
            step = int(one.steps[mine[at]])
            if self.parted is None or step < self.parted.step:
                where = np.flatnonzero(differ[:, at])
                row = _first_of(kind, where)
                pair = float(values[0][row, at]), float(values[1][row, at])
                since = int(one.steps[mine[at - 1]]) if at else None
                self.parted = Parting(step, f"{kind}/norm", pair, rank, names[row], since)
                self.layers = len(where), len(names)

    def _compare(self, one: Reading, other: Reading) -> None:
        for kind in (*KINDS, *(kind for kind in one.tensors if kind not in KINDS)):
            if kind not in one.tensors or kind not in other.tensors:
                continue
            mine, theirs = one.tensors[kind], other.tensors[kind]
            names = _common(mine, theirs)
            if kind in KINDS and len(names) < max(len(mine), len(theirs)):
                self._note_only(mine, theirs)
            for measure in mine.columns:
                if measure in theirs.columns:
                    columns = (_column(mine, names, measure), _column(theirs, names, measure))
                    self.compared += len(names)
                    self._look(one, kind, measure, names, columns)
            if kind == "parameter" and (self.parted is None or one.step < self.parted.step):
                self.same_weights = one.step

    def _look(self, at: Reading, kind: str, measure: str, names: Sequence[str], columns: tuple[Floats, Floats]) -> None:
        def parting(row: int) -> Parting:
            pair = float(columns[0][row]), float(columns[1][row])
            return Parting(at.step, f"{kind}/{measure}", pair, at.rank, names[row])

        unlike = np.flatnonzero(~equal(*columns))
        if not len(unlike):
            return
        if self.drifted is None or at.step < self.drifted.step:
            self.drifted = parting(int(unlike[0]))
        if kind not in KINDS or measure not in _MEASURES or (self.parted is not None and at.step >= self.parted.step):
            return
        beyond = np.flatnonzero(~self._tolerance.holds(*columns))
        if len(beyond):
            self.parted = parting(_first_of(kind, beyond))
            self.layers = len(beyond), len(names)

    def _note_only(self, one: TensorStats, other: TensorStats) -> None:
        mine, theirs = set(one.names), set(other.names)
        self.only[0].extend(name for name in one.names if name not in theirs and name not in self.only[0])
        self.only[1].extend(name for name in other.names if name not in mine and name not in self.only[1])


def _same_samples(one: Ints, other: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of samples that stand for the same steps in both: they end at the same one, and so do those before."""
    _, mine, theirs = np.intersect1d(one, other, return_indices=True)
    before = one[np.maximum(mine - 1, 0)] == other[np.maximum(theirs - 1, 0)]
    same = before & ((mine > 0) == (theirs > 0))
    return mine[same], theirs[same]


def _first_of(kind: str, rows: NDArray[np.intp]) -> int:
    """Of the layers that differ the one that did so first: what goes back from the loss comes to the last one first."""
    return int(rows[-1] if kind == "gradient" else rows[0])


def _merged(one: Iterator[Reading], other: Iterator[Reading]) -> Iterator[tuple[Reading, Reading]]:
    """The readings of the same step and optimizer, in pairs."""
    mine, theirs = next(one, None), next(other, None)
    while mine is not None and theirs is not None:
        ours, others = _key(mine), _key(theirs)
        if ours == others:
            yield mine, theirs
        if ours <= others:
            mine = next(one, None)
        if others <= ours:
            theirs = next(other, None)


def _key(reading: Reading) -> tuple[int, int]:
    return reading.step, -1 if reading.series is None else reading.series


def _common(one: TensorStats, other: TensorStats) -> Sequence[str]:
    if one.names == other.names:
        return one.names
    theirs = set(other.names)
    return [name for name in one.names if name in theirs]


def _column(table: TensorStats, names: Sequence[str], measure: str) -> Floats:
    values = np.asarray(table.columns[measure], dtype=np.float64)
    if names is table.names or tuple(names) == table.names:
        return values
    place = {name: row for row, name in enumerate(table.names)}
    return values[[place[name] for name in names]]
