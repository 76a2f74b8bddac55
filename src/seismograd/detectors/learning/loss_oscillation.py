"""`loss-oscillation`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.running import First
from seismograd.detectors.wording import found, number, one_digit, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LossOscillation:
    """The loss swings up and down from step to step, and the swings do not die down.

    Why it matters
    --------------
    Steps that overshoot the valley go from wall to wall: the run makes no progress, and a little more makes it
    diverge.

    How it is judged
    ----------------
    In blocks of 64 readings of successive steps: each value is the opposite of the one before (a correlation of
    neighbours below `correlation`; batch noise has none), the swing is larger than `amplitude` times what the run has
    gained, reaches back up to the loss it started with, and the mean does not come down. That in `blocks` blocks in a
    row. Two batches or tasks in turn whose losses differ are no oscillation as long as one of them has come down by a
    fifth of its own first losses, those of even steps or of odd ones, and the other has not risen as much.

    What to try
    -----------
    Halve the learning rate until the swings are gone, or lower the momentum.

    An example
    ----------
    Plain gradient descent at twice the rate that the steepest direction allows:

        optimizer = SGD(model.parameters(), lr=0.4)   # from one wall of the valley to the other
        optimizer = SGD(model.parameters(), lr=0.1)   # instead
    """

    id: ClassVar[str] = "loss-oscillation"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    follows: ClassVar[tuple[str, ...]] = (
        "lr-too-high",
        "lr-jump",
        "unnormalized-input",
        "unshuffled-data",
        "loss-explosion",
        "scheduler-order",
        "missing-zero-grad",
    )

    correlation: float = -0.6
    amplitude: float = 0.5
    blocks: int = 2

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_before",
        "_changes",
        "_detector",
        "_first",
        "_last",
        "_lowest",
        "_n",
        "_phases",
        "_sides",
        "_step",
        "_sum",
        "_swings",
        "_top",
        "_turned",
        "_was",
    )

    def __init__(self, detector: LossOscillation) -> None:
        self._detector = detector
        self._first = First(10)
        self._phases = (First(5), First(5))
        self._sides, self._step = [0.0, 0.0], -1
        self._before, self._lowest, self._swings = math.inf, math.inf, 0
        self._last, self._was = math.nan, 0.0
        self._clear()

    def _clear(self) -> None:
        self._n, self._sum, self._changes, self._turned, self._top = 0, 0.0, 0.0, 0.0, -math.inf
        self._sides[0] = self._sides[1] = 0.0

    def check(self, reading: Reading) -> Finding | None:
        loss = reading.scalars["loss"]
        if not -1e150 < loss < 1e150:
            self._last = math.nan
            self._clear()
            return None
        step, side = reading.step, reading.step & 1
        if step != self._step + 1:  # a gap: which of two it is that swings cannot be told
            self._last = math.nan
        self._step = step
        if not self._phases[side].full:
            self._phases[side].add(loss)
        change = loss - self._last
        self._last = loss
        if not -math.inf < change < math.inf:
            return None
        self._n += 1
        self._sum += loss
        self._sides[side] += loss
        self._changes += change * change
        self._turned += change * self._was
        self._was = change
        self._top = max(self._top, loss)
        if self._n < 64:
            if not self._first.full:
                self._first.add(loss)
            return None
        return self._judge(reading)

    def _judge(self, reading: Reading) -> Finding | None:
        limits, start = self._detector, self._first.median
        mean, top, changes = self._sum / 64, self._top, self._changes
        # Neighbouring changes of pure noise are correlated by -0.5, of a swing from wall to wall by -1.
        correlation = 1.0 + 2.0 * self._turned / changes if changes > 0.0 else 0.0
        swing = 0.5 * math.sqrt(changes / 64)
        apart = [
            (side / 32 - first.median) / abs(first.median or 1.0)
            for first, side in zip(self._phases, self._sides, strict=True)
        ]
        learned = min(apart) < -0.2 and max(apart) < 0.2
        self._clear()
        self._lowest = min(self._lowest, mean)
        falling = mean < self._before - 0.25 * swing
        self._before = mean
        gained = max(start - self._lowest, 0.0)
        if (
            correlation > limits.correlation
            or falling
            or learned
            or reading.series is not None
            or swing < limits.amplitude * gained
            or swing < 0.05 * abs(mean)
            or top < start
        ):
            self._swings = 0
            return None
        self._swings += 1
        if self._swings < limits.blocks:
            return None
        lr = max(rates(reading.scalars), default=math.nan)
        message = (
            f"The loss swings by {number(2 * swing)} from one step to the next around {number(mean)},"
            f" for {64 * self._swings} readings, and does not come down."
        )
        evidence = {
            "swing": float(2 * swing),
            "mean": float(mean),
            "correlation": float(correlation),
            "limit": limits.correlation,
            "readings": 64 * self._swings,
        }
        advice = [
            f"Lower the learning rate: try {one_digit(lr / 3):g} instead of {number(lr)}."
            if lr > 0
            else "Lower the learning rate 3 times."
        ]
        advice.append("If two batches take turns and one is harder, shuffle the data.")
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice)
