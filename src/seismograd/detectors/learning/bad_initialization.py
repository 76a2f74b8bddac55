"""`bad-initialization`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from seismograd.detectors.data.tasks import Numbers, cost, step_of
from seismograd.detectors.running import median
from seismograd.detectors.tables import Floats, Rows, Weights, column
from seismograd.detectors.wording import found, names, number, parameter
from seismograd.records import Finding, Reading, Severity, TensorStats, Where


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
    of its fan-in: torch's default has 0.58, Xavier about 1, Kaiming 1.41). In layers that are written by hand the
    fan-in is known by how a weight is used. Too large: a median above `large`, of two the smaller one (less in deep
    models, where it multiplies to 10,000 or more), with a first loss or a spread of gradients that shows its effect,
    and of only two matrices a loss that does not fall to a tenth in 20 steps; or above `raised`, with inputs of usual
    size, a first loss above `excess` times what knowing nothing costs, and half of that 20 steps later. Too small: a
    median below `small` and a loss that has not come down `patience` readings later. Symmetric: at least half of the
    matrices before the last hold one and the same value, or all are zero and get no gradient, or all units of a hidden
    layer give the same, sample by sample, at each of the first `looks` looks. Single odd layers, zero-initialised
    branches and pretrained weights are left alone.

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
    needs: ClassVar[tuple[str, ...]] = ("loss|facts/activations|facts/data",)
    follows: ClassVar[tuple[str, ...]] = ()

    large: float = 10.0
    raised: float = 3.0
    excess: float = 10.0
    small: float = 0.03
    patience: int = 40
    looks: int = 8

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_alike_looks", "_count", "_detector", "_done", "_excess", "_first", "_losses", "_pending", "_weights")

    def __init__(self, detector: BadInitialization) -> None:
        self._detector = detector
        self._weights = Weights()
        self._done, self._count, self._first = False, 0, math.nan
        self._pending: _Suspicion | None = None
        self._losses: deque[float] = deque(maxlen=9)
        self._excess = _Excess(detector.excess)
        self._alike_looks: dict[str, int] | None = {}  # None: told, or not to be told any more

    def check(self, reading: Reading) -> Finding | None:
        if reading.facts:
            return self._units(reading) or self._far_from_chance(reading)
        if self._done:
            return None
        if self._pending is not None:
            return self._wait(reading, self._pending)
        self._count += 1
        table = self._weights.learn(reading)
        if table is None:
            self._done = self._count > 10  # too late: these would be trained weights
            return None
        self._done = True
        finding = self._judge(reading, table)
        if finding is not None:
            self._alike_looks = None
        return finding

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
        suspicion = _Suspicion(gain, len(filled), table.names[int(filled[0])])
        large = (least > limits.large and shows) or (through > 4.0 and not loss < 1e3)
        if large and (len(filled) > 2 or not math.isfinite(loss)):
            return self._large(reading, suspicion, loss)
        if large or (gain < limits.small and math.isfinite(loss)):
            self._pending, self._done = suspicion, False
            self._first, self._count = loss, 0
        elif least > limits.raised:
            self._excess.suspicion = suspicion
        return None

    def _large(self, reading: Reading, what: _Suspicion, loss: float, more: str = "") -> Finding:
        limits = self._detector
        message = (
            f"The weights start too large: a median gain of {number(what.gain)} over {what.many} weight matrices, where"
            f" 0.5 to 2 is usual; the first loss is {number(loss)}{more}."
        )
        evidence = {"gain": what.gain, "limit": limits.large, "parameters": what.many, "loss": float(loss)}
        advice = [
            f"Use `kaiming_normal_` or `xavier_uniform_`, or divide the initial weights by about {number(what.gain)}.",
        ]
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=parameter(what.name))

    def _far_from_chance(self, reading: Reading) -> Finding | None:
        """Weights that are somewhat large, and a loss that shows it for a while."""
        excess = self._excess
        if excess.suspicion is None or "data" not in reading.facts or not excess.learn(reading):
            return None
        more = f", {number(excess.first / excess.chance)} times what knowing nothing costs, and {number(excess.now)}"
        what, excess.suspicion = excess.suspicion, None
        return None if what is None else self._large(reading, what, excess.first, f"{more} {excess.passed} steps later")

    def _units(self, reading: Reading) -> Finding | None:
        """Whether all units of a hidden layer have given the same ever since the first look."""
        looks, facts = self._alike_looks, reading.facts.get("activations")
        if facts is None or looks is None:
            return None
        alike = [layer for layer in facts["layers"] if layer.get("alike") and not layer["last"] and _answers(layer)]
        self._alike_looks = looks = {layer["name"]: looks.get(layer["name"], 0) + 1 for layer in alike}
        same = [layer for layer in alike if looks[layer["name"]] >= max(self._detector.looks, layer["looks"])]
        if not same:
            return None
        self._alike_looks = None
        first, units = same[0], same[0]["units"]
        place = first["after"] or first["name"]
        message = (
            f"Units start alike and stay alike: all {units} units behind `{place}` ({first['op']}) give the same for"
            f" every sample, at each of {first['looks']} looks. They are as good as one."
        )
        evidence: dict[str, Any] = {"units": units, "looks": first["looks"], "layers": [each["name"] for each in same]}
        evidence["limit"] = self._detector.looks
        advice = [
            "Initialise weights at random: `torch.nn.init.kaiming_normal_`; constants are only for biases and norms."
        ]
        where = Where(module=place, phase="forward")
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=where)

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

    def _wait(self, reading: Reading, what: _Suspicion) -> Finding | None:
        """Small weights are only a fault if the loss does not come down with them, two large ones if it stays high."""
        loss, large = reading.scalars["loss"], what.gain > 1.0
        if not math.isfinite(loss):
            self._done = True
            return self._large(reading, what, self._first) if large else None
        self._count += 1
        self._losses.append(loss)
        if self._count < (20 if large else self._detector.patience):
            return None
        self._done = True
        now = median(list(self._losses))
        if large:
            return None if abs(now) < 0.1 * abs(self._first) else self._large(reading, what, self._first)
        if now < self._first - 0.02 * abs(self._first) or self._first == 0.0:
            return None
        gain, many, first = what.gain, what.many, what.name
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


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """Weights of an unusual size: their gain, how many matrices, and the first of them."""

    gain: float
    many: int
    name: str


class _Excess:
    """Compares the first losses with what knowing nothing costs, where the data tell that."""

    __slots__ = ("_excess", "_numbers", "_start", "_values", "chance", "first", "now", "passed", "suspicion")

    def __init__(self, excess: float) -> None:
        self._excess, self._numbers = excess, Numbers()
        self._values: deque[float] = deque(maxlen=9)
        self._start, self.passed = -1, 0
        self.first = self.now = self.chance = math.nan
        self.suspicion: _Suspicion | None = None

    def learn(self, reading: Reading) -> bool:
        """Whether the first loss was far above chance, and still is, 20 steps later."""
        step = step_of(reading, "classes") or step_of(reading, "numbers")
        inputs = reading.facts["data"].get("inputs", ())
        if step is None or not step.alone or step.weighted or any(one["largest"] > _USUAL for one in inputs):
            self.suspicion = None  # it may have other causes
            return False
        if self._start < 0:
            self._start, self.first = reading.step, step.value
        if len(step.moments) >= 2:
            self._numbers.add(step.moments[0], step.moments[1])
        self._values.append(step.value)
        self.passed, self.now = reading.step - self._start, median(list(self._values))
        self.chance = math.log(max(2, step.classes)) if step.labels else cost(step.name, self._numbers.size)
        if not self.first > self._excess * self.chance > 0.0 or self.passed > 60:
            self.suspicion = None
        return self.passed >= 20 and self.now > max(0.5 * self._excess * self.chance, 0.1 * self.first)


_USUAL = 10.0
"""Inputs above this size explain a large first loss themselves."""


def _answers(layer: Mapping[str, Any]) -> bool:
    """Whether its units do not all lie in flat regions, where they would be alike whatever made them."""
    return bool(layer.get("flat", 0) < layer["units"])


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
