"""`bad-initialization`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from seismograd.detectors.running import median
from seismograd.detectors.tables import Floats, Rows, Weights, column
from seismograd.detectors.wording import found, names, number, parameter
from seismograd.records import Finding, Reading, Severity, TensorStats


@dataclass(frozen=True)
class BadInitialization:
    """The weights start too large, too small, or all alike.

    Why it matters
    --------------
    Units that start equal get equal gradients and stay equal: a layer of a thousand is then a layer of one. Weights
    far too large or too small blow signals and gradients up or let them fade with every layer.

    How it is judged
    ----------------
    By the first reading of the parameters, on the gain of each weight matrix (its standard deviation times the root
    of its fan-in: torch's default has 0.58, Xavier about 1, Kaiming 1.41). Too large: a median above `large`, of two
    the smaller one (less in deep models, where it multiplies to 10,000 or more), with a first loss or a spread of
    gradients that shows its effect. Too small: a median below `small` and a loss that has not come down `patience`
    readings later. Symmetric: at least half of the matrices before the last hold one and the same value, or all are
    zero and get no gradient. Single odd layers, zero-initialised branches and pretrained weights are left alone.

    What to try
    -----------
    `kaiming_normal_` before ReLU, `xavier_uniform_` otherwise, or torch's defaults; zero only for biases and the last
    layer of a residual branch.

    An example
    ----------
    Every unit of a layer starts the same, gets the same gradient and stays the same:

        nn.init.constant_(layer.weight, 0.1)    # as wide as one unit
        nn.init.kaiming_normal_(layer.weight)   # instead
    """

    id: ClassVar[str] = "bad-initialization"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    follows: ClassVar[tuple[str, ...]] = ()

    large: float = 10.0
    small: float = 0.03
    patience: int = 40

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_count", "_detector", "_done", "_first", "_losses", "_pending", "_weights")

    def __init__(self, detector: BadInitialization) -> None:
        self._detector = detector
        self._weights = Weights()
        self._done, self._count, self._first = False, 0, math.nan
        self._pending: tuple[float, int, str] | None = None
        self._losses: deque[float] = deque(maxlen=9)

    def check(self, reading: Reading) -> Finding | None:
        if self._done:
            return None
        if self._pending is not None:
            return self._small(reading)
        self._count += 1
        table = self._weights.learn(reading)
        if table is None:
            self._done = self._count > 10  # too late: these would be trained weights
            return None
        self._done = True
        return self._judge(reading, table)

    def _judge(self, reading: Reading, table: TensorStats) -> Finding | None:
        limits = self._detector
        gains, norms, stds, sizes = (column(table, measure) for measure in ("gain", "norm", "std", "size"))
        if gains is None or norms is None:
            return None
        rows = self._weights.rows(table)
        if sizes is not None:
            rows = rows[sizes[rows] > 4]
        if len(rows) < 2 or not np.isfinite(norms[rows]).all():
            return None
        if stds is not None and sizes is not None:
            level = norms[rows] / np.sqrt(sizes[rows])
            alike = self._alike(reading, table, rows, (stds[rows] <= 1e-5 * level) & (level > 0.0))
            if alike is not None:
                return alike
        filled = rows[norms[rows] > 0.0]
        if len(filled) < 2:
            return None
        gain = float(np.median(gains[filled]))
        least = float(np.sort(gains[filled])[(len(filled) - 1) // 2])  # one odd layer of two must not decide
        loss = reading.scalars["loss"]
        through = len(filled) * math.log10(max(least, 1e-300) / math.sqrt(2.0))  # what ReLU layers make of a signal
        shows = loss > 15.0 or not math.isfinite(loss) or _uneven(reading, table, filled, norms)
        if (least > limits.large and shows) or (through > 4.0 and not loss < 1e3):
            first = table.names[int(filled[0])]
            message = (
                f"The weights start too large: a median gain of {number(gain)} over {len(filled)} weight"
                " matrices, where 0.5 to 2"
                f" is usual; the first loss is {number(loss)}."
            )
            evidence = {"gain": gain, "limit": limits.large, "parameters": len(filled), "loss": float(loss)}
            advice = [
                f"Use `kaiming_normal_` or `xavier_uniform_`, or divide the initial weights by about {number(gain)}.",
            ]
            return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=parameter(first))
        if gain < limits.small and math.isfinite(loss):
            self._pending, self._done = (gain, len(filled), table.names[int(filled[0])]), False
            self._first, self._count = loss, 0
        return None

    def _alike(
        self, reading: Reading, table: TensorStats, rows: Rows, constant: npt.NDArray[np.bool_]
    ) -> Finding | None:
        """Weight matrices of one value: their units can never become different."""
        norms = np.asarray(table.columns["norm"])
        before_last = rows[:-1][constant[:-1]]
        if 2 * len(before_last) >= len(rows) - 1:
            same = [table.names[at] for at in before_last]
            value = "one and the same value"
        elif not norms[rows].any() and _no_gradient(reading, [table.names[at] for at in rows]):
            same, value = [table.names[at] for at in rows], "zeros, and get no gradient"
        else:
            return None
        message = (
            f"Units start alike and will stay alike: {len(same)} of {len(rows)} weight matrices hold {value}"
            f" ({names(same)})."
        )
        evidence: dict[str, Any] = {"parameters": len(same), "of": len(rows), "std": 0.0, "limit": 0.0}
        advice = [
            f"Initialise `{same[0]}` at random: `torch.nn.init.kaiming_normal_`; constants are only for biases"
            " and norms."
        ]
        return found(
            self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=parameter(same[0])
        )

    def _small(self, reading: Reading) -> Finding | None:
        """Small weights are only a fault if the loss does not come down with them."""
        loss = reading.scalars["loss"]
        if not math.isfinite(loss):
            self._done = True
            return None
        self._count += 1
        self._losses.append(loss)
        if self._count < self._detector.patience or self._pending is None:
            return None
        self._done = True
        now = median(list(self._losses))
        if now < self._first - 0.02 * abs(self._first) or self._first == 0.0:
            return None
        gain, many, first = self._pending
        message = (
            f"The weights start too small: a median gain of {number(gain)} over {many} weight matrices, where 0.5"
            " to 2 is usual;"
            f" after {self._count} readings the loss is still {number(now)}."
        )
        evidence = {
            "gain": gain,
            "limit": self._detector.small,
            "parameters": many,
            "loss": float(now),
            "loss_start": float(self._first),
        }
        advice = [
            f"Use `kaiming_normal_` or `xavier_uniform_`, or multiply the initial weights by about {number(1 / gain)}."
        ]
        return found(
            self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=parameter(first)
        )


def _gradients(reading: Reading, wanted: list[str]) -> list[tuple[str, float]]:
    table = reading.tensors.get("gradient")
    norms = column(table, "norm") if table is not None else None
    if table is None or norms is None:
        return []
    known = dict(zip(table.names, norms.tolist(), strict=True))
    return [(name, known[name]) for name in wanted if name in known]


def _no_gradient(reading: Reading, wanted: list[str]) -> bool:
    read = _gradients(reading, wanted)
    return len(read) == len(wanted) and all(norm == 0.0 for _, norm in read)


def _uneven(reading: Reading, table: TensorStats, rows: Rows, norms: Floats) -> bool:
    """Whether the gradients, relative to their weights, differ by more than 1000 times between layers."""
    sizes = {table.names[at]: float(norms[at]) for at in rows}
    relative = [norm / sizes[name] for name, norm in _gradients(reading, list(sizes)) if norm > 0.0]
    return len(relative) > 1 and max(relative) > 1e3 * min(relative)
