"""`loss-explosion`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import ClassVar

from seismograd.detectors.running import First
from seismograd.detectors.wording import found, number, one_digit, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LossExplosion:
    """The loss runs away: upwards, or below all bounds.

    Why it matters
    --------------
    A run that diverges does not come back by itself. Everything learned is lost, and NaN is usually next.

    How it is judged
    ----------------
    The scale of a run is the largest of its first losses, their spread, and how far it has come down since (at
    least `floor` where only its height counts). The loss has exploded when it is more than `far` scales above its
    start and multiplies from reading to reading, when it jumps `huge` scales up for `sustained` readings, when it
    jumps up and stays `stay` scales above its start for 50, when it has doubled seven times from `far` scales on
    and the last three times took no longer than the first, however slowly, or is a million scales away. Within the
    first 30 readings its scale is that of the very first loss: it has exploded when it multiplies by three at each
    of four readings, or leaps `huge` times away and has not come back to within `far` times 50 readings later, but
    for one reading in five. Downwards: when it is `below` times the first loss, or the noise of the first ten,
    under its start, and falls faster than linearly with the step, by a power of `power` or more, both lately and
    before; likelihoods that fall below zero slow down instead. Losses that grow gradually (value functions) are
    fine.

    What to try
    -----------
    Lower the learning rate, warm it up, clip gradients. If the loss runs to minus infinity, it rewards something
    without bound: a variance that goes to zero, a critic without its constraint, a sign.

    An example
    ----------
    A sign: what should be maximised is minimised, and has no lower bound:

        loss = log_likelihood(x).mean()     # runs to minus infinity
        loss = -log_likelihood(x).mean()    # instead
    """

    id: ClassVar[str] = "loss-explosion"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    follows: ClassVar[tuple[str, ...]] = (
        "lr-too-high",
        "lr-jump",
        "bad-initialization",
        "gradient-explosion",
        "unnormalized-input",
        "unnormalized-target",
        "input-drift",
        "missing-zero-grad",
        "scheduler-order",
        "loss-input-mismatch",
        "label-out-of-range",
        "accumulation-mismatch",
        "unshuffled-data",
    )

    far: float = 10.0
    huge: float = 1e3
    stay: float = 30.0
    below: float = 200.0
    power: float = 1.5
    sustained: int = 5
    floor: float = 0.1

    def start(self) -> _Checker:
        return _Checker(self)


_DOUBLINGS = 8  # of the distance from the start, `far` scales being the first
_PACE = 1.25


class _Checker:
    __slots__ = (
        "_above",
        "_best",
        "_count",
        "_detector",
        "_doubled",
        "_first",
        "_first_step",
        "_gate",
        "_last",
        "_leapt",
        "_low",
        "_mark",
        "_marks",
        "_near",
        "_normal",
        "_recent",
        "_running",
        "_scale",
        "_start",
        "_stayed",
        "_streak",
        "_very_first",
    )

    def __init__(self, detector: LossExplosion) -> None:
        self._detector = detector
        self._first: First = First(30)
        self._recent: deque[float] = deque(maxlen=11)
        self._marks: list[tuple[int, float]] = []
        self._mark, self._first_step, self._very_first, self._low = 4, 0, math.nan, -math.inf
        self._leapt, self._stayed = False, deque[bool](maxlen=50)
        self._doubled: list[int] = []  # the readings at which the distance had grown to `far` scales, and doubled since
        self._count, self._above, self._normal, self._streak = 0, 0, 0, 0
        self._start = self._scale = self._last = math.nan
        self._best, self._gate, self._near = math.inf, math.inf, math.inf
        self._running = False

    def check(self, reading: Reading) -> Finding | None:
        loss = reading.scalars["loss"]
        if not -math.inf < loss < math.inf:
            return None
        self._count += 1
        self._recent.append(loss)
        if self._count <= 30:
            early = self._early(loss)
            if early:
                return self._up(reading, loss, "multiplied at each of the last readings")
            if self._count == 1:
                self._first_step, self._very_first = reading.step, loss
            if self._count == 10:
                self._low = min(self._very_first - self._detector.below * max(self._very_scale(), self._jitter()), 0.0)
        if self._leapt or self._count <= 30:
            stays = self._stays(loss)
            if stays:
                self._start, self._gate = self._very_first, self._very_first + self._detector.far * self._very_scale()
                return self._up(reading, loss, "leapt up in the first steps and has not come back")
        if loss < self._best:
            self._best = loss
            self._measure()
        passed = reading.step - self._first_step
        if passed >= self._mark:
            self._mark = 2 * passed
            self._marks.append((passed, loss))
        if loss < self._low and self._falls_faster(loss, passed):
            return self._down(reading, loss)
        if loss <= self._gate:
            self._above, self._running = 0, False
            self._doubled.clear()
            if loss <= self._near:
                self._normal = self._count
            return None
        return self._judge(reading, loss)

    def _early(self, loss: float) -> bool:
        """The first readings: what multiplies by three at each step from the start has no level to be compared with."""
        if self._count == 1:
            self._start = self._last = loss
        self._streak = self._streak + 1 if loss > 3.0 * self._last > 0.0 else 0
        self._last = loss
        self._first.add(loss)
        if self._count >= 10:
            self._measure()
        return self._streak >= 4 and loss > 100.0 * self._start

    def _measure(self) -> None:
        """The run's own scale, and from it the level above which a loss is looked at."""
        if self._count < 10:
            return
        start = self._start = self._first.median
        self._scale = max(abs(start), 2.0 * self._first.spread, start - self._best)
        self._gate = start + self._detector.far * self._scale if self._scale > 0.0 else math.inf
        self._near = start + self._scale

    def _judge(self, reading: Reading, loss: float) -> Finding | None:
        limits = self._detector
        self._above += 1
        if self._running:
            return self._up(reading, loss, "is still far above its start")
        distance = loss - self._start
        scale = max(
            self._scale, limits.floor
        )  # a run that starts at almost nothing (a value function) has room to grow
        fast = self._count - self._normal - self._above
        values = list(self._recent)
        if len(values) == 11 and self._above >= 3:
            rises = sum(after > before for before, after in pairwise(values))
            if rises >= 9 and distance > 2.0 * (values[0] - self._start) and values[-1] > values[-3]:
                return self._up(reading, loss, "multiplies from reading to reading")
        if self._keeps_doubling(sorted(values)[len(values) // 2] - self._start, scale):
            return self._up(reading, loss, "doubles again and again")
        if (
            self._above >= limits.sustained
            and fast <= 100
            and min(values[-limits.sustained :]) > self._start + limits.huge * scale
        ):
            return self._up(reading, loss, f"has been there for {self._above} readings")
        if self._above >= 50 and fast <= 20 and min(values) > self._start + limits.stay * scale:
            return self._up(reading, loss, f"has stayed there for {self._above} readings")
        if distance > 1e6 * scale:
            return self._up(reading, loss, "is beyond all bounds")
        return None

    def _keeps_doubling(self, distance: float, scale: float) -> bool:
        """Whether the distance from the start doubles at a steady pace, for a hundredfold and more.

        What grows with a power of the step, as value functions do, takes longer and longer to double.
        """
        doubled = self._doubled
        while len(doubled) < _DOUBLINGS and distance > self._detector.far * scale * 2.0 ** len(doubled):
            doubled.append(self._count)
        if len(doubled) < _DOUBLINGS or not all(earlier < later for earlier, later in pairwise(doubled)):
            return False
        return doubled[-1] - doubled[-4] <= _PACE * (doubled[3] - doubled[0])

    def _stays(self, loss: float) -> bool:
        """Whether a loss that leapt away from the very first one within 30 readings is still far from it."""
        limits, first = self._detector, self._very_first
        scale = self._very_scale()
        if self._count <= 30 and loss > first + limits.huge * scale:
            self._leapt = True
        self._stayed.append(loss > first + limits.far * scale)
        if self._count > 100:
            self._leapt = False
        if not (self._leapt and self._stayed[-1] and self._count > 50):
            return False
        # a batch without a mistake has a loss of zero in a ruined model, too: a few of them are no return
        return sum(self._stayed) >= 40 and sum(islice(reversed(self._stayed), 10)) >= 8

    def _jitter(self) -> float:
        """The noise of the first ten losses, without their trend."""
        values = list(self._recent)
        return sorted(abs(b - 0.5 * (a + c)) for a, b, c in zip(values, values[1:], values[2:], strict=False))[4]

    def _very_scale(self) -> float:
        return max(abs(self._very_first), self._detector.floor)

    def _falls_faster(self, loss: float, passed: int) -> bool:
        """Whether the distance from the start grows with a power of the steps, lately and before.

        A likelihood falls with the logarithm of the step (a power near 0), a steady fall has 1.
        """
        if len(self._marks) < 5 or passed < 50:
            return False
        (t2, late), (t1, early) = self._marks[-2], self._marks[-4]
        start, power = self._very_first, self._detector.power
        now, middle, before = start - loss, start - late, start - early
        if not 0.0 < before < middle < now:
            return False
        lately = math.log(now / middle) / math.log(passed / t2)
        return lately > power and math.log(middle / before) / math.log(t2 / t1) > power

    def _up(self, reading: Reading, loss: float, how: str) -> Finding:
        self._running = True
        start = self._start
        lr = max(rates(reading.scalars), default=math.nan)
        message = (
            f"The loss has exploded: {number(loss)} at step {reading.step}, from {number(start)} at the"
            f" start; it {how}."
        )
        evidence = {"loss": float(loss), "start": float(start), "limit": float(self._gate)}
        advice = [
            f"Lower the learning rate: try {one_digit(lr / 10):g} instead of {number(lr)}."
            if lr > 0
            else "Lower the learning rate 10 times."
        ]
        advice.append("Clip gradients with `clip_grad_norm_`, and go back to a checkpoint of before the rise.")
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice)

    def _down(self, reading: Reading, loss: float) -> Finding:
        message = (
            f"The loss runs below all bounds: {number(loss)} at step {reading.step}, from {number(self._very_first)},"
            " and it falls faster and faster."
        )
        evidence = {
            "loss": float(loss),
            "start": float(self._very_first),
            "limit": float(self._low),
        }
        advice = [
            "Look for a term without a lower bound: a sign, a variance that goes to zero, a critic without"
            " clipping or penalty.",
            "Bound it: clamp the log-variance, clip the critic's weights or add a gradient penalty.",
        ]
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice)
