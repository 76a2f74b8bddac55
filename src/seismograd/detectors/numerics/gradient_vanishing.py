"""`gradient-vanishing`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.beginning import Beginning
from seismograd.detectors.running import First, Welford, median
from seismograd.detectors.tables import Floats, Weights, agreement, column
from seismograd.detectors.wording import found, number, parameter
from seismograd.records import Finding, Reading, Severity, TensorStats, Where


@dataclass(frozen=True)
class GradientVanishing:
    """Almost no gradient reaches the early layers, or any layer, although the loss is still where it began.

    Why it matters
    --------------
    Layers without gradient keep their random weights: the model trains only its last layers, or nothing at all.

    How it is judged
    ----------------
    On sampled readings, over the weight matrices in their order. The early quarter's gradient below `starved` of the
    late ones', falling steadily with depth, over `readings` samples and `steps` steps while the loss has not come down
    by `progress` (below `starved_always` also when it has); or exactly zero in all of them but the last while the loss
    has not come down, or in all of them while biases get one: no unit fires any more; or the whole gradient so small
    that changing every weight by its own size would not change the loss by `flat` of it, while the loss has not moved
    since a start with fresh random weights (info where the weights are not known to be fresh: a minimum looks the
    same); or, in a recurrent cell with nothing but a tanh, the gain of its weight to the power of the steps that it is
    used for below `forgotten`, while the loss of fresh weights is known to have stayed where it began for `patience`
    steps: what lies far back gets no gradient. Frozen parameters, branches that start at zero, unused experts and
    converged runs are none of these.

    What to try
    -----------
    ReLU-like activations instead of sigmoid or tanh, residual connections, normalisation layers, Kaiming or Xavier
    initialisation; for a model that gets no gradient at all, look for saturated outputs and dead ReLU layers.

    An example
    ----------
    Ten layers of sigmoid: each passes on a quarter of the gradient at best:

        layers += [nn.Linear(64, 64), nn.Sigmoid()]  # the first layers get nothing
        layers += [nn.Linear(64, 64), nn.ReLU()]     # instead
    """

    id: ClassVar[str] = "gradient-vanishing"
    needs: ClassVar[tuple[str, ...]] = ("loss|gradient|facts/uses",)
    follows: ClassVar[tuple[str, ...]] = (
        "bad-initialization",
        "lr-too-high",
        "lr-jump",
        "loss-explosion",
        "gradient-explosion",
        "dead-units",
        "saturated-units",
        "unnormalized-input",
        "double-softmax",
        "frozen-parameter",
        "missing-gradient",
    )

    starved: float = 1e-4
    starved_always: float = 1e-7
    flat: float = 1e-6
    readings: int = 5
    steps: int = 20
    progress: float = 0.05
    forgotten: float = 1e-6
    patience: int = 100

    def start(self) -> _Checker:
        return _Checker(self)


_MANY = 20
"""Losses, of the beginning and of now, that are compared."""


class _Checker:
    __slots__ = (
        "_beginning", "_detector", "_first", "_last", "_loops", "_losses", "_since", "_start", "_times", "_weights",
    )  # fmt: skip

    def __init__(self, detector: GradientVanishing) -> None:
        self._detector = detector
        self._weights, self._beginning = Weights(), Beginning()
        self._first: First = First(3)
        self._losses: deque[float] = deque(maxlen=5)
        self._times = {"starved": 0, "dead": 0, "flat": 0}
        self._since = {"starved": 0, "dead": 0, "flat": 0}
        self._loops: dict[str, int] = {}  # weights of recurrent cells, and how often they are used in a row
        self._start, self._last = Welford(), deque[float](maxlen=_MANY)

    def check(self, reading: Reading) -> Finding | None:
        if "uses" in reading.facts:
            self._loops = dict(reading.facts["uses"]["loops"])
            return None
        loss = reading.scalars.get("loss", math.nan)
        if math.isfinite(loss):
            self._last.append(loss)
            if self._start.count < _MANY:
                self._start.add(loss)
        if "gradient" not in reading.tensors or "parameter" not in reading.tensors:
            return None
        return self._check(reading) or self._forgets(reading)

    def _check(self, reading: Reading) -> Finding | None:
        parameters = self._weights.learn(reading)
        self._beginning.learn(reading)
        table = reading.tensors["gradient"]
        norms, sizes = column(table, "norm"), column(parameters, "norm") if parameters is not None else None
        loss = reading.scalars.get("loss", math.nan)
        if norms is None or sizes is None or not np.isfinite(norms).all() or "amp-skipped" in reading.marks:
            return None
        if math.isfinite(loss):
            self._first.add(loss)
            self._losses.append(loss)
        rows = self._weights.rows(table)
        deep = norms[rows]
        stuck = self._stuck()
        ratio = _starvation(deep)
        limits = self._detector
        if self._held("starved", reading, ratio < limits.starved_always or (stuck and ratio < limits.starved)):
            return self._starved(reading, table, ratio, len(rows))
        if self._held("dead", reading, self._is_dead(deep, norms, loss, stuck)):
            return self._dead(reading, table, deep)
        total, size = float(np.sqrt(norms @ norms)), float(np.sqrt(np.nansum(sizes * sizes)))
        effect = total * size / abs(loss) if loss and math.isfinite(loss) else math.inf
        if self._held("flat", reading, stuck and len(deep) > 0 and effect < limits.flat):
            return self._flat(reading, total, effect)
        return None

    def _forgets(self, reading: Reading) -> Finding | None:
        """Whether a recurrent cell passes nothing back in time, and nothing is learned."""
        limits, table = self._detector, reading.tensors["parameter"]
        gains = column(table, "gain")
        if not self._loops or gains is None or not self._beginning.fresh or reading.step < limits.patience:
            return None
        late = Welford()
        for loss in self._last:
            late.add(loss)
        error = math.sqrt((late.std**2 + self._start.std**2) / _MANY)
        level = abs(self._start.mean)
        if late.count < _MANY or error > 0.02 * level or abs(late.mean - self._start.mean) > 2.0 * error + 0.01 * level:
            return None
        for name, uses in self._loops.items():
            gain = float(gains[table.names.index(name)]) if name in table.names else math.nan
            if 0.0 < gain < 1.0 and gain**uses < limits.forgotten:
                return self._forgotten(reading, name, uses, gain)
        return None

    def _forgotten(self, reading: Reading, name: str, uses: int, gain: float) -> Finding:
        late = sum(self._last) / len(self._last)
        message = (
            f"What lies far back gets no gradient: each of {uses} steps through `{name}` leaves about {number(gain)}"
            f" of it, all of them {number(gain**uses)}; after {reading.step} steps the loss is still {number(late)}."
        )
        evidence = {
            "gain": gain,
            "uses": uses,
            "ratio": gain**uses,
            "limit": self._detector.forgotten,
            "loss_start": self._start.mean,
        }
        advice = [
            "Use `nn.LSTM` or `nn.GRU`, which carry their state on, or attention over the steps.",
            f"Start the recurrent weight orthogonal: `nn.init.orthogonal_({name})`.",
        ]
        return found(
            self._detector,
            reading,
            Severity.WARNING,
            message,
            evidence,
            advice=advice,
            where=parameter(name, "backward"),
        )

    @staticmethod
    def _is_dead(deep: Floats, norms: Floats, loss: float, stuck: bool) -> bool:
        """Whether the gradient ends before the weights: at the last matrix, or already at the last bias."""
        if len(deep) < 2 or loss == 0.0 or deep[:-1].any():
            return False
        return (stuck and len(deep) >= 3) if deep[-1] > 0.0 else bool(norms.any())

    def _held(self, kind: str, reading: Reading, now: bool) -> bool:
        """Whether this has been so for enough readings and steps."""
        if not now:
            self._times[kind] = 0
            return False
        if not self._times[kind]:
            self._since[kind] = reading.step
        self._times[kind] += 1
        limits = self._detector
        return self._times[kind] >= limits.readings and reading.step - self._since[kind] >= limits.steps

    def _stuck(self) -> bool:
        """Whether the loss is still where it began: what has come down has had its gradient."""
        if len(self._losses) < 3:
            return False
        begin, now = self._first.median, median(list(self._losses))
        return begin != 0.0 and now > begin - self._detector.progress * abs(begin)

    def _starved(self, reading: Reading, table: TensorStats, ratio: float, layers: int) -> Finding:
        rows = self._weights.rows(table)
        first, last = table.names[int(rows[0])], table.names[int(rows[-1])]
        a_layer = ratio ** (1.0 / max(1, layers - 1))
        message = (
            f"Early layers are starved: `{first}` gets {number(ratio)} of the gradient that reaches `{last}`,"
            f" a factor of about {number(a_layer)} lost in each of {layers} layers."
        )
        evidence = {
            "ratio": float(ratio),
            "limit": self._detector.starved,
            "layers": layers,
            "a_layer": float(a_layer),
            "readings": self._times["starved"],
        }
        advice = [
            "Use ReLU or GELU instead of sigmoid or tanh between the layers.",
            f"Add residual connections or a normalisation layer: {layers} layers in a row lose"
            f" {number(1 / a_layer)} times each.",
        ]
        severity = Severity.CRITICAL if self._stuck() else Severity.WARNING
        return found(
            self._detector, reading, severity, message, evidence, advice=advice, where=parameter(first, "backward")
        )

    def _dead(self, reading: Reading, table: TensorStats, deep: Floats) -> Finding:
        rows, times = self._weights.rows(table), self._times["dead"]
        first, last = table.names[int(rows[0])], table.names[int(rows[-1])]
        zero, layers = int(np.sum(deep == 0.0)), len(deep)
        message = (
            f"No gradient gets past `{last}`: the other {zero} weight matrices have had a gradient of exactly zero"
            if zero < layers
            else f"Only biases get a gradient: all {zero} weight matrices have had one of exactly zero"
        )
        message += f" for {times} sampled readings."
        evidence = {"zero": zero, "of": layers, "readings": times, "limit": 0.0}
        advice = [
            f"Look at what feeds `{last}`: units that never fire, a `detach()`, or an op without a gradient"
            " (argmax, round).",
            "If ReLU units died, lower the learning rate or use LeakyReLU, and start again: dead units do not"
            " come back.",
        ]
        return found(
            self._detector,
            reading,
            Severity.CRITICAL,
            message,
            evidence,
            advice=advice,
            where=parameter(first, "backward"),
        )

    def _flat(self, reading: Reading, total: float, effect: float) -> Finding:
        message = (
            f"The whole gradient has vanished (norm {number(total)}) while the loss is still where it began"
            f" ({number(self._first.median)}): the model sits on a flat spot."
        )
        evidence = {
            "norm": total,
            "effect": effect,
            "limit": self._detector.flat,
            "loss": float(reading.scalars["loss"]),
            "loss_start": float(self._first.median),
        }
        advice = [
            "Look for a saturated last activation (sigmoid, softmax, tanh) and give the loss logits instead.",
            "Scale inputs and initial weights down, so that activations leave the flat region.",
        ]
        severity = Severity.CRITICAL if self._beginning.fresh else Severity.INFO
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=Where(phase="backward"))


def _starvation(deep: Floats) -> float:
    """The early layers' gradient as a share of the late layers', 1 where it does not fall with depth.

    Zeros are left out: a branch that starts at zero or an expert that is not used has no gradient, and is fine. The
    largest of the early ones speaks for them: the gradient has come as far as that, and where queries and keys get
    little beside the values of their layer, it is their attention that is still even.
    """
    alive = deep[deep > 0.0]
    if len(alive) < 4 or len(alive) < 0.5 * len(deep):
        return 1.0
    quarter = max(1, len(alive) // 4)
    ratio = float(np.max(alive[:quarter]) / np.median(alive[-quarter:]))
    return ratio if ratio >= 1.0 or agreement(np.log(alive)) > 0.6 else 1.0
