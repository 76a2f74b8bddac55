"""`lr-jump`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.loop.orders import scheduled
from seismograd.detectors.running import Ema, First, median
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class LrJump:
    """The learning-rate schedule goes wrong: it jumps up, falls to nothing far too early, or below zero.

    Why it matters
    --------------
    A jump throws away what was learned; a rate of zero learns nothing while the loop goes on; a negative one climbs
    the loss.

    How it is judged
    ----------------
    For every parameter group. Negative: at once. A jump of `jump` times or more in one step to above anything before,
    mid-run, with a loss that then rises out of its noise (restarts go back to a rate that was there before, and a
    warm-up in stages does no harm). Zero in all groups for `dead` readings and a tenth of the run. A smooth decay to
    below `nothing` of the highest rate that then goes on for `long` readings and a quarter of the run, while the loss
    has not converged: a schedule meant for epochs that is stepped with every batch.

    What to try
    -----------
    Print the rate once per epoch. Step the scheduler where it was meant to be (per epoch or per batch), and give it
    the right total number of steps.

    An example
    ----------
    A schedule made for epochs is stepped at every batch:

        for x, y in loader:
            train_step(x, y)
            scheduler.step()  # StepLR(step_size=10): nothing is left of the rate after 100 batches
        scheduler.step()      # instead, once an epoch
    """

    id: ClassVar[str] = "lr-jump"
    needs: ClassVar[tuple[str, ...]] = ("lr|facts/order",)
    follows: ClassVar[tuple[str, ...]] = ("scheduler-order",)

    jump: float = 5.0
    dead: int = 50
    nothing: float = 1e-4
    long: int = 100

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_before",
        "_changes",
        "_count",
        "_detector",
        "_first",
        "_highest",
        "_jump",
        "_level",
        "_loss",
        "_low_since",
        "_lr",
        "_peak",
        "_recent",
        "_scheduled",
        "_wait",
        "_zero",
    )

    def __init__(self, detector: LrJump) -> None:
        self._detector = detector
        self._lr: dict[str, float] = {}
        self._highest: dict[str, float] = {}
        self._count, self._zero, self._low_since, self._changes = 0, 0, 0, 0
        self._recent: deque[float]
        self._first, self._loss, self._recent = First(10), Ema(20), deque(maxlen=32)
        self._jump: tuple[str, float, float, int] | None = None
        self._wait, self._level, self._before, self._peak = 0, 0.0, 0.0, 0.0
        self._scheduled = Where()  # the line that steps the scheduler

    def check(self, reading: Reading) -> Finding | None:
        scalars = reading.scalars
        if "order" in reading.facts:
            for turn in reading.facts["order"]["turns"] if self._scheduled.line is None else ():
                self._scheduled = scheduled(reading.facts["order"], turn)
            return None
        self._count += 1
        known, limits = self._lr, self._detector
        highest_now, jumped, fell = 0.0, None, False
        for name, lr in scalars.items():
            if name[:3] != "lr/":
                continue
            if lr < 0.0:
                return self._negative(reading, name, lr)
            highest_now = max(highest_now, lr)
            last = known.get(name)
            if last == lr:
                continue
            known[name] = lr
            if last is not None:
                fell = fell or lr < last
                if self._count > 20 and lr >= limits.jump * last > 0.0 and lr > 2.0 * self._highest[name]:
                    jumped = (name, last, lr, reading.step)
            self._highest[name] = max(self._highest.get(name, 0.0), lr)
        if len(known) > 64 and len(known) > 2 * len(scalars):  # names that come and go
            self._lr = {name: lr for name, lr in known.items() if name in scalars}
            self._highest = {name: lr for name, lr in self._highest.items() if name in scalars}
        finding = self._jumps(reading, jumped)
        if finding is not None:
            return finding
        self._peak = max(self._peak, highest_now)
        if highest_now == 0.0:
            self._zero += 1
            return self._is_zero(reading)
        self._zero = 0
        if fell:
            self._changes += 1
        if highest_now >= limits.nothing * self._peak:
            self._low_since = self._count
            if highest_now == self._peak:
                self._changes = 0
            return None
        return self._is_low(reading, highest_now)

    def _jumps(self, reading: Reading, jumped: tuple[str, float, float, int] | None) -> Finding | None:
        loss = reading.scalars.get("loss", math.nan)
        finite = -math.inf < loss < math.inf
        if jumped is not None and self._jump is None and len(self._recent) >= 16:
            self._jump, self._wait = jumped, 0
            ordered = sorted(self._recent)
            quarter = len(ordered) // 4
            self._before = ordered[2 * quarter]
            noise = (ordered[3 * quarter] - ordered[quarter]) / 1.349
            self._level = max(6.0 * noise, 0.2 * abs(self._before))
            self._recent.clear()
        if finite:
            self._recent.append(loss)
            self._loss.add(loss)
            if self._count <= 20:
                self._first.add(loss)
        if self._jump is None:
            return None
        self._wait += 1
        name, last, lr, step = self._jump
        worse = not finite if "loss" in reading.scalars else False
        if self._wait >= 6 and len(self._recent) >= 4:
            worse = worse or median(list(self._recent)) > self._before + self._level
        if self._wait > 30:
            self._jump = None
        if not worse:
            return None
        self._jump = None
        group = name.removeprefix("lr/")
        message = (
            f"The learning rate of group {group} jumped from {number(last)} to {number(lr)} at step {step},"
            f" {number(lr / last)} times; the loss rose from {number(self._before)} to {number(loss)}."
        )
        evidence = {
            "group": group,
            "lr": float(lr),
            "lr_before": float(last),
            "times": float(lr / last),
            "limit": self._detector.jump,
            "loss_before": float(self._before),
            "loss": float(loss),
        }
        advice = [
            f"Check what sets the rate at step {step}: a second scheduler, a factor above 1, a restored state.",
            f"If it is meant, rise to {number(lr)} over some hundred steps instead of one.",
        ]
        return found(
            self._detector,
            reading,
            Severity.WARNING,
            message,
            evidence,
            advice=advice,
            step=step,
            where=self._scheduled,
        )

    def _negative(self, reading: Reading, name: str, lr: float) -> Finding:
        message = (
            f"The learning rate of group {name.removeprefix('lr/')} is negative ({number(lr)}) at step"
            f" {reading.step}: the optimizer climbs the loss."
        )
        evidence = {"group": name.removeprefix("lr/"), "lr": float(lr), "limit": 0.0}
        advice = ["The schedule ran past its end: give it the right number of steps, or clamp it: `max(0.0, ...)`."]
        return found(
            self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=self._scheduled
        )

    def _is_zero(self, reading: Reading) -> Finding | None:
        limits, since = self._detector, self._zero
        before = self._count - since
        wait = max(limits.dead, before // 10) if self._peak > 0.0 else limits.long
        if since < wait or since % wait:
            return None
        start = reading.step - since + 1
        if self._peak > 0.0:
            message = (
                f"The learning rate has been zero since about step {start}, for {since} readings: nothing is"
                " learned any more."
            )
            advice = [f"The schedule ends too early: give it the number of steps that the run has, not {before}."]
            severity = Severity.WARNING if self._converged() else Severity.CRITICAL
        else:
            message = (
                f"The learning rate has been zero for all {since} readings: warm-up has not begun, and"
                " nothing is learned."
            )
            advice = [
                "Step the scheduler with every batch if warm-up is counted in batches, and let it start at step + 1."
            ]
            severity = Severity.WARNING
        evidence = {"lr": 0.0, "highest": float(self._peak), "readings": since, "limit": wait}
        return found(limits, reading, severity, message, evidence, advice=advice, where=self._scheduled)

    def _is_low(self, reading: Reading, lr: float) -> Finding | None:
        limits = self._detector
        since = self._count - self._low_since
        wait = max(limits.long, self._low_since // 4)
        if since < wait or since % wait or self._changes < 20 or self._converged():
            return None
        message = (
            f"The learning rate decayed to {number(lr)}, {number(lr / self._peak)} of its highest, within"
            f" {self._low_since} readings,"
            f" and the run has gone on for {since} more with the loss at {number(self._loss.mean)}."
        )
        evidence = {
            "lr": float(lr),
            "highest": float(self._peak),
            "share": float(lr / self._peak),
            "limit": limits.nothing,
            "readings": since,
        }
        advice = [
            "Step the scheduler once per epoch if that is what its settings mean; it is being stepped with every"
            " batch.",
            f"Or stretch it over the whole run: at least {self._count} steps so far.",
        ]
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=self._scheduled)

    def _converged(self) -> bool:
        """Whether the loss has come down so far that a dead rate does no harm."""
        start, now = self._first.median, self._loss.mean
        return math.isfinite(start) and abs(now) < 0.05 * abs(start)
