"""`loss-plateau`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.running import First, Welford
from seismograd.detectors.wording import found, number, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LossPlateau:
    """The loss stays where it began: no progress where progress was still to be had.

    Why it matters
    --------------
    A run that does not learn looks like one that learns slowly, and can be waited for a long time.

    How it is judged
    ----------------
    In blocks of 50 readings: the mean has not come down more than `progress` below the start, the spread is within
    `spread` of the level, there is no trend beyond the noise, and the gradient does not grow (a run that is about to leave a saddle). That for
    `patience` readings where nothing moves at all, for twice as many where there is noise. A loss that has come down and levels off has
    converged and is fine, as is one that is zero, changes its sign, or has a learning rate in warm-up or at the end of its decay.

    What to try
    -----------
    Try to overfit one batch: if that fails too, the fault is in the model or the loop, not in the data. Check that the optimizer holds the
    model's parameters and steps, that gradients reach them, that labels belong to their inputs, and the learning rate.
    """

    id: ClassVar[str] = "loss-plateau"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    follows: ClassVar[tuple[str, ...]] = (
        "missing-step",
        "lost-gradient",
        "detached-loss",
        "missing-gradient",
        "unoptimized-parameter",
        "unregistered-parameter",
        "frozen-parameter",
        "scheduler-order",
        "nonfinite-loss",
        "nonfinite-gradient",
        "nonfinite-parameter",
        "amp-scale-collapse",
        "precision-underflow",
        "bad-initialization",
        "lr-too-high",
        "lr-too-low",
        "lr-jump",
        "loss-explosion",
        "gradient-explosion",
        "gradient-vanishing",
        "weight-decay-dominates",
        "update-ratio-low",
        "dead-units",
        "saturated-units",
        "constant-output",
        "output-range",
        "double-softmax",
        "loss-input-mismatch",
        "shuffled-labels",
        "unnormalized-input",
        "unnormalized-target",
        "broadcast-loss",
    )

    patience: int = 100
    progress: float = 0.05
    spread: float = 0.02

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_best",
        "_block",
        "_detector",
        "_first",
        "_flat",
        "_gradient",
        "_gradients",
        "_highest_lr",
        "_length",
        "_lowest",
        "_lr",
        "_marks",
        "_means",
        "_still",
        "_top",
    )

    def __init__(self, detector: LossPlateau) -> None:
        self._detector = detector
        self._first = First(10)
        self._block = Welford()
        self._length = max(1, detector.patience // 2)
        self._lowest, self._top = math.inf, -math.inf
        self._flat, self._still = 0, 0
        self._best = math.inf
        self._means: list[tuple[float, float]] = []
        self._gradient, self._gradients = Welford(), [math.inf]
        self._lr, self._highest_lr = 0.0, 0.0

    def check(self, reading: Reading) -> Finding | None:
        loss = reading.scalars["loss"]
        if not -math.inf < loss < math.inf:
            return None
        self._first.add(loss)
        block = self._block
        block.add(loss)
        self._lowest = min(self._lowest, loss)
        self._top = max(self._top, loss)
        norm = reading.scalars.get("grad/norm", 0.0)
        if 0.0 < norm < math.inf:
            self._gradient.add(norm)
        if block.count < self._length:
            return None
        return self._judge(reading)

    def _judge(self, reading: Reading) -> Finding | None:
        """At the end of a block."""
        limits, mean, noise = self._detector, self._block.mean, self._block.std
        start, lowest, top = self._first.median, self._lowest, self._top
        before, growth = self._gradients[-1], self._gradient.mean
        lr = max(rates(reading.scalars), default=math.nan)
        rising, last_lr = lr > 1.01 * self._lr, self._lr
        self._lr, self._highest_lr = lr, max(self._highest_lr, lr if lr == lr else 0.0)
        self._block.clear()
        self._gradient.clear()
        self._lowest, self._top = math.inf, -math.inf
        self._gradients = [growth]
        self._best = min(self._best, mean)
        level = abs(mean)
        flat = (
            reading.series is None
            and level > 0.0
            and lowest * top > 0.0
            and noise <= limits.spread * level
            and mean >= start - limits.progress * abs(start)
            and mean <= start + limits.progress * abs(start) + 0.5 * level
            and not (rising and last_lr > 0.0)
            and not lr < 0.02 * self._highest_lr
            and not (lr == 0.0)
            and not growth > 1.5 * before
        )
        if flat and self._means:
            known = [m for m, _ in self._means]
            error = math.hypot(noise, self._means[-1][1]) / math.sqrt(self._length)
            # what falls by more than the noise of the means still makes progress, however slow
            flat = not (self._means[-1] and max(known) - mean > 3.0 * error + 1e-12 * level and mean < known[-1])
        if not flat:
            self._flat = self._still = 0
            self._means = []
            return None
        self._means = [*self._means[-3:], (mean, noise)]
        self._flat += self._length
        self._still = self._still + self._length if noise <= 1e-4 * level else 0
        if self._still < limits.patience and self._flat < 2 * limits.patience:
            return None
        return self._found(reading, mean, noise, start, lr)

    def _found(self, reading: Reading, mean: float, noise: float, start: float, lr: float) -> Finding:
        classes = round(math.exp(mean)) if 0.6 < mean < 7.0 else 0
        chance = 2 <= classes <= 30 and abs(mean - math.log(classes)) < 0.01 * mean
        message = (
            f"The loss has not moved for {self._flat} readings: it is {number(mean)} and began at {number(start)}."
            + (f" That is what guessing among {classes} classes gives." if chance else "")
        )
        evidence = {
            "loss": float(mean),
            "start": float(start),
            "spread": float(noise / abs(mean)),
            "limit": self._detector.spread,
            "readings": self._flat,
        }
        if chance:
            evidence["chance_of_classes"] = classes
        if noise <= 1e-6 * abs(mean):
            advice = [
                "Nothing changes at all: check that `optimizer.step()` runs and holds these parameters, and that the output depends on the input."
            ]
        else:
            advice = [
                "Only the batches differ, not the model: check that labels belong to their inputs, and that gradients reach every layer."
            ]
        advice.append("Try to overfit one batch; it must go to zero within some hundred steps.")
        if lr == lr:
            advice.append(f"Try a learning rate 10 times smaller and 10 times larger than {number(lr)}.")
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice)
