"""`loss-plateau`."""

from __future__ import annotations

import math
from collections import deque
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
    `spread` of the level (more where the loss is what guessing gives), there is no trend beyond the noise, and the
    gradient does not grow (a run that is about to leave a saddle). That for `patience` readings where nothing moves
    at all, for twice as many where there is noise. A loss that has come down and levels off has converged and is
    fine, as is one that is zero, changes its sign, or has a learning rate in warm-up or at the end of its decay.

    What to try
    -----------
    Try to overfit one batch: if that fails too, the fault is in the model or the loop, not in the data. Check that
    the optimizer holds the model's parameters and steps, that gradients reach them, that labels belong to their
    inputs, and the learning rate.
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
        "_block",
        "_detector",
        "_first",
        "_flat",
        "_gradient",
        "_highest_lr",
        "_learned",
        "_length",
        "_lowest",
        "_lr",
        "_means",
        "_pushed",
        "_still",
        "_top",
    )

    def __init__(self, detector: LossPlateau) -> None:
        self._detector = detector
        self._first = First(10)
        self._block, self._gradient = Welford(), Welford()
        self._length = max(1, detector.patience // 2)
        self._lowest, self._top = math.inf, -math.inf
        self._flat, self._still, self._learned = 0, 0, False
        self._means: deque[tuple[float, float]] = deque(maxlen=4)
        self._pushed, self._lr, self._highest_lr = math.inf, 0.0, 0.0

    def check(self, reading: Reading) -> Finding | None:
        scalars = reading.scalars
        loss = scalars["loss"]
        if not -math.inf < loss < math.inf:
            return None
        block = self._block
        block.add(loss)
        if not self._first.full:
            self._first.add(loss)
        self._lowest = min(self._lowest, loss)
        self._top = max(self._top, loss)
        norm = scalars.get("grad/norm", 0.0)
        if 0.0 < norm < math.inf:
            self._gradient.add(norm)
        if block.count < self._length:
            return None
        return self._judge(reading)

    def _judge(self, reading: Reading) -> Finding | None:
        """At the end of a block."""
        limits, mean, noise = self._detector, self._block.mean, self._block.std
        start, level = self._first.median, abs(mean)
        flat = (
            level > 0.0
            and self._lowest * self._top > 0.0
            and noise <= limits.spread * level * (2.5 if _classes(mean) else 1.0)
            and abs(mean - start) <= limits.progress * abs(start)
            and not self._learned
            and self._ready(reading)
            and not self._falls(mean, noise)
            and reading.series is None  # adversaries hold each other level
        )
        self._learned = self._learned or mean < start - limits.progress * abs(start)
        self._block.clear()
        self._gradient.clear()
        self._lowest, self._top = math.inf, -math.inf
        if not flat:
            self._flat = self._still = 0
            self._means.clear()
            return None
        self._means.append((mean, noise))
        self._flat += self._length
        self._still = self._still + self._length if noise <= 1e-4 * level else 0
        if self._still < limits.patience and self._flat < 2 * limits.patience:
            return None
        return self._found(reading, mean, noise, start)

    def _ready(self, reading: Reading) -> bool:
        """Whether the run could be learning: not in warm-up, not at the end of its schedule, not leaving a saddle."""
        lr, last = max(rates(reading.scalars), default=math.nan), self._lr
        gradient, before = self._gradient.mean, self._pushed
        self._lr, self._pushed = lr, gradient
        self._highest_lr = max(lr, self._highest_lr)
        if last > 0.0 and lr > 1.01 * last:
            return False
        return not (lr == 0.0 or lr < 0.02 * self._highest_lr or gradient > 1.5 * before > 0.0)

    def _falls(self, mean: float, noise: float) -> bool:
        """Whether this block is below an earlier one by more than their noise: progress, however slow."""
        error = 3.0 * noise / math.sqrt(self._length) + 1e-12 * abs(mean)
        return any(before - mean > max(error, 3.0 * spread / math.sqrt(self._length)) for before, spread in self._means)

    def _found(self, reading: Reading, mean: float, noise: float, start: float) -> Finding:
        classes = _classes(mean)
        message = (
            f"The loss has not moved for {self._flat} readings: it is {number(mean)} and began at {number(start)}."
            + (f" That is what guessing among {classes} classes gives." if classes else "")
        )
        evidence = {
            "loss": float(mean),
            "start": float(start),
            "spread": float(noise / abs(mean)),
            "limit": self._detector.spread,
            "readings": self._flat,
        }
        if classes:
            evidence["chance_of_classes"] = classes
        if noise <= 1e-6 * abs(mean):
            advice = [
                "Nothing changes at all: check that `optimizer.step()` runs and holds these parameters, and that"
                " the output depends on the input."
            ]
        else:
            advice = [
                "Only the batches differ, not the model: check that labels belong to their inputs, and that"
                " gradients reach every layer."
            ]
        advice.append("Try to overfit one batch; it must go to zero within some hundred steps.")
        lr = max(rates(reading.scalars), default=math.nan)
        if lr > 0.0:
            advice.append(f"Try a learning rate 10 times smaller and 10 times larger than {number(lr)}.")
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice)


def _classes(loss: float) -> int:
    """The number of classes among which guessing gives this loss, 0 if there is no such number."""
    if not 0.6 < loss < 3.5:
        return 0
    classes = round(math.exp(loss))
    return classes if abs(loss - math.log(classes)) < 0.01 * loss else 0
