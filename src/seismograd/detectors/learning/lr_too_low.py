"""`lr-too-low`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.beginning import Beginning
from seismograd.detectors.running import Welford
from seismograd.detectors.tables import Weights, column
from seismograd.detectors.wording import found, number, one_digit, rates
from seismograd.records import Finding, Reading, Severity, TensorStats


@dataclass(frozen=True)
class LrTooLow:
    """Steps are so small that the run would need a million of them to get anywhere.

    Why it matters
    --------------
    The loop runs, gradients flow, and the weights stand practically still: time and money for nothing.

    How it is judged
    ----------------
    On sampled updates: no weight matrix moves by more than `moved` of its own norm, and the gradient times the
    update, the most that a step can lower the loss, is below `gain` of it (ten times that where the weights are fresh
    from their initialisation, and have all their way to go), although the gradient is strong enough for
    more. That in `samples` samples over `steps` steps. Or all the way so far: weights that were fresh, and after
    `steps` steps no weight matrix can have moved by more than `path` of its own norm, nor the loss by two percent, by
    what updates and gradients say. In either case the mean of the last ten losses is not below that of the first ten
    by more than two standard errors and half a percent. The end of a decay and a converged run are left alone, and so
    is a warm-up for three times `steps`. In a model without weight matrices, of embeddings alone, its large parameters
    count instead.

    What to try
    -----------
    The rate named in the finding, which would move the weights by `target` of their size a step, or a range test
    (`LearningRateFinder`).

    An example
    ----------
    A rate for fine-tuning, in a training from scratch:

        optimizer = SGD(model.parameters(), lr=1e-7)
        optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)    # instead
    """

    id: ClassVar[str] = "lr-too-low"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    follows: ClassVar[tuple[str, ...]] = (
        "lr-jump",
        "precision-underflow",
        "gradient-vanishing",
        "amp-scale-collapse",
        "frozen-parameter",
        "unoptimized-parameter",
        "double-softmax",
        "missing-step",
        "lost-gradient",
        "scheduler-order",
    )

    moved: float = 1e-5
    gain: float = 1e-6
    samples: int = 6
    steps: int = 100
    target: float = 1e-3
    path: float = 0.01

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_beginning",
        "_count",
        "_detector",
        "_first",
        "_gained",
        "_highest",
        "_large",
        "_losses",
        "_lr",
        "_moved",
        "_seen",
        "_since",
        "_start",
        "_total",
        "_warmed",
        "_weights",
    )

    def __init__(self, detector: LrTooLow) -> None:
        self._detector = detector
        self._weights, self._beginning = Weights(), Beginning()
        self._large: frozenset[str] = frozenset()
        self._first: list[float] = []
        self._losses: deque[float] = deque(maxlen=10)
        self._total = 0
        self._count, self._since, self._lr, self._highest = 0, 0, 0.0, 0.0
        self._start = self._seen = self._warmed = -1
        self._moved, self._gained = 0.0, 0.0  # at most, since the start

    def check(self, reading: Reading) -> Finding | None:
        tensors = reading.tensors
        loss, limits = reading.scalars.get("loss", math.nan), self._detector
        if -1e150 < loss < 1e150:
            self._losses.append(loss)
            self._total += 1
            if self._total <= 10:
                self._first.append(loss)
        if "parameter" in tensors:
            self._large = _large(self._weights.learn(reading))
            self._beginning.learn(reading)
        table = tensors.get("update")
        if table is None:
            return None
        lr = max(rates(reading.scalars))
        warming, self._lr = lr > 1.01 * self._lr and self._lr > 0.0, lr
        self._highest = max(self._highest, lr)
        ratios, moves, gradients = column(table, "ratio"), column(table, "norm"), column(table, "gradient")
        if not math.isfinite(loss) or loss == 0.0 or ratios is None or moves is None or gradients is None:
            return None
        rows = self._weights.rows(table)
        if not len(rows):
            rows = np.array([at for at, name in enumerate(table.names) if name in self._large], dtype=np.intp)
        rows = rows[(ratios[rows] > 0.0) & (gradients[rows] > 0.0)]
        if warming:
            self._warmed = reading.step
        if not len(rows):
            self._count = 0
            return None
        most = float(np.max(ratios[rows]))
        gain = float(np.nansum(moves * gradients)) / abs(loss)
        # How much the loss would answer if every weight moved by its own size: is there progress to be had?
        slope = float(np.sum(gradients[rows] * moves[rows] / ratios[rows])) / abs(loss)
        on_the_way = self._goes_on(reading, most, gain) and slope > 0.1
        least = 10.0 * limits.gain if self._beginning.fresh else limits.gain
        if warming or lr < 0.1 * self._highest or not (most < limits.moved and gain < least and slope > 0.01):
            self._count = 0
        else:
            if not self._count:
                self._since = reading.step
            self._count += 1
        slow = self._count >= limits.samples and reading.step - self._since >= limits.steps
        if lr < 0.1 * self._highest or not (slow or on_the_way):
            return None
        begin, now, error = self._compare()
        if now < begin - 2.0 * error - 0.005 * abs(begin) or now > begin + 4.0 * error + 0.05 * abs(begin):
            return None
        better = one_digit(lr * limits.target / most)
        message = (
            f"lr {number(lr)} moves no weight matrix by more than {number(most)} of its own size a step; at this"
            " rate the loss"
            f" ({number(now)}) needs over {number(1.0 / gain)} steps to come down."
        )
        if warming:
            message += f" After {reading.step} steps it is still being warmed up."
        evidence = {
            "ratio": most,
            "limit": limits.moved,
            "gain_a_step": gain,
            "gain_limit": least,
            "lr": float(lr),
            "suggested_lr": better,
            "loss": float(now),
            "loss_start": float(begin),
        }
        if math.isfinite(self._moved):
            evidence |= {"path": self._moved, "path_limit": limits.path}
        advice = [f"Try a learning rate of {better:g}: it would move the weights by about 0.1 % a step."]
        if warming:
            advice.insert(0, "Shorten the warm-up to a few percent of the run's steps.")
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice)

    def _goes_on(self, reading: Reading, most: float, gain: float) -> bool:
        """Adds up how far fresh weights can have come; whether that is next to nothing, after steps enough."""
        limits, step = self._detector, reading.step
        if self._start < 0:
            self._start = self._seen = step
            if step > 10 or reading.series is not None or not self._beginning.fresh:
                self._moved = math.inf
        since, self._seen = max(1, step - self._seen), step
        self._moved += since * most
        self._gained += since * gain
        passed = step - self._start
        patience = 3 * limits.steps if self._warmed > self._start + passed // 2 else limits.steps
        return passed >= patience and self._moved < limits.path and self._gained < 0.02

    def _compare(self) -> tuple[float, float, float]:
        """The mean of the first losses, of the last ones, and the standard error of their difference."""
        count = max(1, min(10, self._total // 2))
        first, last = Welford(), Welford()
        for early, late in zip(self._first[:count], list(self._losses)[-count:], strict=True):
            first.add(early)
            last.add(late)
        return first.mean, last.mean, math.sqrt((first.std**2 + last.std**2) / count)


def _large(table: TensorStats | None) -> frozenset[str]:
    """The parameters that are not much smaller than the largest: in a model of embeddings, these."""
    sizes = None if table is None else column(table, "size")
    if table is None or sizes is None:
        return frozenset()
    return frozenset(table.names[at] for at in np.flatnonzero(sizes >= 0.1 * sizes.max(initial=0.0)))
