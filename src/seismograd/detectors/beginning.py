"""What the first table of parameters tells of a run: whether its weights are fresh, and how many outputs it has."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seismograd.detectors.tables import column
from seismograd.records import Reading

_GAINS = (math.sqrt(1 / 3), 1.0, math.sqrt(2.0))
"""Of torch's default, of a linear and of a ReLU layer by Kaiming, Xavier being worked out for each shape."""
_DEVIATIONS = (1.0, 0.1, 0.02, 0.01)
"""Round numbers that people give to `normal_`."""

SOLVED = 1e-5
"""A loss that came down to this part of its first value is as close to its aim as single precision comes."""


class Beginning:
    """Looks at the first parameter table only.

    `fresh` is True where most weight matrices (in a model of embeddings alone, these) have just the spread that an
    initialisation gives them, False where they do not (weights that were trained before), None where it is not known.
    A fresh model cannot have converged.
    """

    __slots__ = ("_seen", "fresh", "outputs")

    def __init__(self) -> None:
        self._seen = 0
        self.fresh: bool | None = None
        self.outputs = 0
        """The rows of the last weight matrix: the number of classes, where there are any."""

    def learn(self, reading: Reading) -> None:
        """Takes note of a reading, of which the first ten count."""
        if self._seen >= 10:
            return
        self._seen += 1
        table = reading.tensors.get("parameter")
        if table is None:
            return
        self._seen = 10
        gains, stds, sizes = column(table, "gain"), column(table, "std"), column(table, "size")
        if gains is None or stds is None or sizes is None:
            return
        rows = np.flatnonzero(np.isfinite(gains) & (gains > 0.0) & (stds > 0.0))
        if not len(rows):
            drawn = np.flatnonzero((sizes >= 0.1 * sizes.max(initial=0.0)) & (sizes >= 32))
            if len(drawn):
                self.fresh = all(_is_one_of(_DEVIATIONS, float(stds[at]), float(sizes[at])) for at in drawn)
            return
        fan_in = (gains[rows] / stds[rows]) ** 2
        self.outputs = round(float(sizes[rows[-1]] / fan_in[-1]))
        large = sizes[rows] >= 32
        if large.sum() < 2:
            return
        known = [
            _known(float(stds[at]), float(fan), float(sizes[at]), recurrent="weight_ih" in name or "weight_hh" in name)
            for at, fan in zip(rows[large], fan_in[large], strict=True)
            for name in (table.names[at],)
        ]
        self.fresh = sum(known) >= max(2.0, 2.0 / 3.0 * len(known))

    def guess(self, loss: float) -> int:
        """The number of classes if `loss` is what guessing among the model's own outputs gives, else 0."""
        classes = 2 if self.outputs == 1 else self.outputs
        if classes < 2:
            return 0
        chance = math.log(classes)
        return classes if -0.01 * chance <= loss - chance <= 0.03 * chance else 0


def _known(std: float, fan_in: float, size: float, *, recurrent: bool) -> bool:
    """Whether this is the spread of a usual initialisation, within what a sample of this size may differ by."""
    fan_out = size / fan_in
    xavier = math.sqrt(2.0 / (fan_in + fan_out))
    usual = [gain / math.sqrt(fan_in) for gain in _GAINS] + [xavier, 5.0 / 3.0 * xavier, *_DEVIATIONS]
    if recurrent:  # torch goes by the hidden size, of which there are as many as the cell has gates
        usual += [math.sqrt(gates / (3.0 * fan_out)) for gates in (1, 3, 4)]
    return _is_one_of(usual, std, size)


def _is_one_of(usual: Sequence[float], std: float, size: float) -> bool:
    within = min(0.15, max(0.01, 1.8 / math.sqrt(size)))
    return any(abs(std - expected) <= within * expected for expected in usual)
