"""`loss-spike`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.insights import evidence_of
from seismograd.detectors.running import First, Window
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LossSpike:
    """The loss jumps far out of its noise and comes back.

    Why it matters
    --------------
    One jump of one reading is a strange batch. Jumps from which the run needs several steps to recover mean that the
    weights themselves were thrown off: each costs progress, and the next may not come back.

    How it is judged
    ----------------
    Against the last 100 readings (at least `warm`): `deviations` times their robust spread above the median, three
    times further out than any of them, and at least `share` of what the run has come down since its start, so that
    bounces of a converged run do not count. It has to come back within `window` readings. One is info; from `repeats`
    on that lasted two readings or more, each with a gradient `thrown` times larger than the run has ever had outside
    of spikes, it is a warning: weights were thrown off. A loss that jumps without such a gradient has met other data
    (a new task, a harder stage), and learns them. A rise after the learning rate was raised is no spike.

    What to try
    -----------
    Look at the batch of that step. For repeated ones: clip gradients, lower the learning rate or Adam's beta2, skip
    batches whose gradient norm is far out.

    An example
    ----------
    Adam forgets the size of rare, large gradients within ten steps:

        optimizer = Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.9))
        optimizer = Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999))  # instead, with clipping
    """

    id: ClassVar[str] = "loss-spike"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    follows: ClassVar[tuple[str, ...]] = (
        "lr-too-high",
        "lr-jump",
        "gradient-explosion",
        "input-drift",
        "unshuffled-data",
        "nonfinite-input",
        "missing-zero-grad",
        "ineffective-clipping",
    )

    deviations: float = 10.0
    share: float = 0.25
    window: int = 20
    repeats: int = 3
    thrown: float = 8.0
    warm: int = 50

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_best",
        "_calm",
        "_detector",
        "_first",
        "_insight",
        "_level",
        "_lr",
        "_peak",
        "_push",
        "_quiet",
        "_reach",
        "_recent",
        "_spikes",
        "_step",
        "_width",
    )

    def __init__(self, detector: LossSpike) -> None:
        self._detector = detector
        self._recent, self._first = Window(100), First(10)
        self._best = math.inf
        self._width, self._peak, self._step, self._level, self._reach = 0, 0.0, 0, 0.0, 0.0
        self._spikes: deque[int] = deque(maxlen=64)
        self._lr, self._quiet = 0.0, 0
        self._insight: Mapping[str, Any] | None = None
        self._calm = self._push = 0.0

    @property
    def suspects(self) -> bool:
        """Whether the loss is out of its noise at present; a spike is known by its coming back."""
        return self._width > 0

    def check(self, reading: Reading) -> Finding | None:
        loss = reading.scalars["loss"]
        if not -math.inf < loss < math.inf or reading.series is not None:
            return None
        lr = reading.scalars.get("lr/0", 0.0)
        if lr > 1.3 * self._lr:
            self._lr, self._quiet = lr, 50
        elif self._quiet:
            self._quiet -= 1
        elif lr < self._lr:
            self._lr = lr
        recent = self._recent
        norm = reading.scalars.get("grad/norm", 0.0)
        if self._width:
            self._push = max(self._push, norm)
            return self._in_spike(reading, loss)
        if len(recent) >= self._detector.warm and loss > recent.highest and self._quiet == 0:
            level = recent.median
            reach = max(self._detector.deviations * recent.spread, 3.0 * (recent.highest - level), 1e-3 * abs(level))
            start = self._first.median
            come_down = max(start - level, 0.0)
            if level > start + 0.1 * abs(start):  # it has grown since: a value function, not a run that was thrown off
                come_down = math.inf
            if loss - level > reach and loss - level > self._detector.share * max(come_down, 0.5 * abs(level)) > 0.0:
                self._width, self._peak, self._step, self._level, self._reach = 1, loss, reading.step, level, reach
                self._push, self._insight = norm, reading.insight
                return None
        if self._calm < norm < math.inf:
            self._calm = norm
        self._first.add(loss)
        recent.add(loss)
        return None

    def _in_spike(self, reading: Reading, loss: float) -> Finding | None:
        limits = self._detector
        back = self._level + max(0.25 * (self._peak - self._level), 0.0)
        if loss > back:
            self._width += 1
            if loss > self._peak:
                self._peak, self._step = loss, reading.step
            if self._width > limits.window:  # it stayed: another level, or another fault
                self._width = 0
                self._recent.clear()
                self._first.add(loss)
            return None
        width, self._width = self._width, 0
        self._recent.add(loss)
        thrown = self._push / self._calm if self._calm > 0.0 else 0.0
        if width > 1 and thrown >= limits.thrown:
            self._spikes.append(reading.step)
        lately = sum(step > reading.step - 5000 for step in self._spikes)
        deviations = (self._peak - self._level) / (self._reach / limits.deviations)
        lasted = "one reading" if width == 1 else f"{width} readings"
        message = (
            f"The loss jumped from {number(self._level)} to {number(self._peak)} at step {self._step} and was"
            f" back after {lasted}" + (f"; it is number {lately} of its kind." if lately >= limits.repeats else ".")
        )
        evidence = {
            "peak": float(self._peak),
            "usual": float(self._level),
            "deviations": float(deviations),
            "limit": limits.deviations,
            "readings": width,
            "spikes": lately,
            "gradient": float(self._push),
            "largest_before": float(self._calm),
            **evidence_of(self._insight, limits.id),
        }
        if width == 1:
            advice = [
                f"Look at the batch of step {self._step}: one that is gone at once is usually an outlier in the data."
            ]
        elif thrown < limits.thrown:
            advice = [
                f"The gradient was not unusual, so the data are: look at what changed at step {self._step} (another"
                " task, another stage, another file).",
            ]
        else:
            advice = [
                "The weights were thrown off, not only a batch: clip gradients with `clip_grad_norm_`, or lower"
                " the learning rate.",
                f"Look at the batches of the steps before {self._step}.",
            ]
        severity = Severity.WARNING if lately >= limits.repeats else Severity.INFO
        return found(limits, reading, severity, message, evidence, advice=advice, step=self._step)
