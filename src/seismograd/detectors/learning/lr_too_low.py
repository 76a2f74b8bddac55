"""`lr-too-low`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.running import First, median
from seismograd.detectors.tables import Weights, column
from seismograd.detectors.wording import found, number, one_digit, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LrTooLow:
    """Steps are so small that the run would need a million of them to get anywhere.

    Why it matters
    --------------
    The loop runs, gradients flow, and the weights stand practically still: time and money for nothing.

    How it is judged
    ----------------
    On sampled updates: no weight matrix moves by more than `moved` of its own norm, and the gradient times the
    update, the most that a step can lower the loss, is below `gain` of it, although the gradient is strong enough for
    more. That in `samples` samples over `steps` steps in which the loss has not come down. Warm-up, the end of a
    decay and a converged run are left alone.

    What to try
    -----------
    The rate named in the finding, which would move the weights by `target` of their size a step, or a range test
    (`LearningRateFinder`).
    """

    id: ClassVar[str] = "lr-too-low"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    follows: ClassVar[tuple[str, ...]] = ("lr-jump", "precision-underflow", "gradient-vanishing", "amp-scale-collapse")

    moved: float = 1e-5
    gain: float = 1e-6
    samples: int = 6
    steps: int = 100
    target: float = 1e-3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_count", "_detector", "_first", "_highest", "_losses", "_lr", "_since", "_weights")

    def __init__(self, detector: LrTooLow) -> None:
        self._detector = detector
        self._weights = Weights()
        self._first = First(3)
        self._losses: deque[float] = deque(maxlen=5)
        self._count, self._since, self._lr, self._highest = 0, 0, 0.0, 0.0

    def check(self, reading: Reading) -> Finding | None:
        tensors = reading.tensors
        if "parameter" in tensors:
            self._weights.learn(reading)
        table = tensors.get("update")
        if table is None:
            return None
        loss, limits = reading.scalars.get("loss", math.nan), self._detector
        lr = max(rates(reading.scalars))
        warming, self._lr = lr > 1.01 * self._lr and self._lr > 0.0, lr
        self._highest = max(self._highest, lr)
        ratios, moves, gradients = column(table, "ratio"), column(table, "norm"), column(table, "gradient")
        if not math.isfinite(loss) or loss == 0.0 or ratios is None or moves is None or gradients is None:
            return None
        self._first.add(loss)
        self._losses.append(loss)
        rows = self._weights.rows(table)
        rows = rows[(ratios[rows] > 0.0) & (gradients[rows] > 0.0)]
        if warming or lr < 0.1 * self._highest or not len(rows):
            self._count = 0
            return None
        most = float(np.max(ratios[rows]))
        gain = float(np.nansum(moves * gradients)) / abs(loss)
        # How much the loss would answer if every weight moved by its own size: is there progress to be had?
        slope = float(np.sum(gradients[rows] * moves[rows] / ratios[rows])) / abs(loss)
        begin, now = self._first.median, median(list(self._losses))
        moved = now < begin - 0.01 * abs(begin) or now > begin + 0.05 * abs(begin)
        if not (most < limits.moved and gain < limits.gain and slope > 0.01) or moved:
            self._count = 0
            return None
        if not self._count:
            self._since = reading.step
        self._count += 1
        if self._count < limits.samples or reading.step - self._since < limits.steps:
            return None
        better = one_digit(lr * limits.target / most)
        message = (
            f"lr {number(lr)} moves no weight matrix by more than {number(most)} of its own size a step; at this"
            " rate the loss"
            f" ({number(now)}) needs over {number(1.0 / gain)} steps to come down."
        )
        evidence = {
            "ratio": most,
            "limit": limits.moved,
            "gain_a_step": gain,
            "gain_limit": limits.gain,
            "lr": float(lr),
            "suggested_lr": better,
            "loss": float(now),
            "loss_start": float(begin),
        }
        advice = [f"Try a learning rate of {better:g}: it would move the weights by about 0.1 % a step."]
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice)
