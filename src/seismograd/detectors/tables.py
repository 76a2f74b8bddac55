"""Which rows of a table of tensors are weight matrices, and one column of it as an array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seismograd.records import Reading, TensorStats

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]


def column(table: TensorStats, measure: str) -> Floats | None:
    """One measure as an array, None where it was not read."""
    values = table.columns.get(measure)
    return None if values is None else np.asarray(values, dtype=np.float64)


class Weights:
    """Remembers which parameters are weight matrices: those for which the parameter table has a gain.

    Biases, the scales of norms and embeddings are none, and follow other rules.
    """

    __slots__ = ("_known", "_names", "_rows", "_seen")

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._seen: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        self._rows: Rows = np.zeros(0, dtype=np.intp)

    def learn(self, reading: Reading) -> TensorStats | None:
        """Takes note of the parameter table of this reading, if there is one, and returns it."""
        table = reading.tensors.get("parameter")
        if table is not None and table.names != self._seen:
            gains = column(table, "gain")
            if gains is not None:
                self._seen = table.names
                self._known = frozenset(table.names[at] for at in np.flatnonzero(~np.isnan(gains)))
                self._names = ()
        return table

    def rows(self, table: TensorStats) -> Rows:
        """The rows of `table` that are weight matrices, in its order."""
        if table.names != self._names:
            self._names = table.names
            self._rows = np.array([at for at, name in enumerate(table.names) if name in self._known], dtype=np.intp)
        return self._rows


def agreement(values: Floats) -> float:
    """How steadily `values` rise with their position: Spearman's rank correlation, -1 to 1."""
    count = len(values)
    if count < 3:
        return 0.0
    ranks = np.empty(count)
    ranks[np.argsort(values, kind="stable")] = np.arange(count)
    difference = ranks - np.arange(count)
    return float(1.0 - 6.0 * np.dot(difference, difference) / (count * (count * count - 1.0)))
