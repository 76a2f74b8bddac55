"""It can overfit one batch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import ClassVar

from seismograd.detectors.wording import number
from seismograd.preflight.scene import Scene, finding
from seismograd.preflight.trial import CannotCheckError
from seismograd.records import Finding, Severity

_STEPS, _LONG = 40, 4.0
_RATES = (1e-3, 1e-2, 1e-1)


class Overfit:
    """Trains a few dozen steps on this one batch, with Adam, and puts everything back.

    Any model that can learn at all learns one batch by heart. Where the loss does not fall clearly at any of three
    learning rates, something is cut off, stuck or not to be had: `loss-plateau`. Nothing is said of a loss that is
    close to zero already, and where the loss is none of torch's it is only information: it may have a floor.
    """

    name: ClassVar[str] = "overfits one batch"
    trains: ClassVar[bool] = True
    watched: ClassVar[bool] = False

    def check(self, scene: Scene) -> Iterable[Finding]:
        assert scene.trial is not None
        tried: dict[float, tuple[float, float]] = {}
        for lr in _RATES:
            losses = self._losses(scene, lr)
            if not losses:
                raise CannotCheckError("the loss is not finite")
            first, last = median(losses[:3]), median(losses[-5:])
            tried[lr] = (first, last)
            if abs(first) < 1e-3 or _falls(losses):
                scene.figures["overfits"] = {"first": first, "last": last, "lr": lr, "steps": len(losses)}
                return []
        first, last = min(tried.values(), key=lambda pair: pair[1])
        message = (
            f"The loss of one batch does not fall in {_STEPS} steps: from {number(first)} to {number(last)} at best,"
            f" with Adam at {', '.join(f'{lr:g}' for lr in _RATES)}."
        )
        advice = [
            "Look for a part that is cut off from the loss, labels that do not belong to the inputs, dead layers."
        ]
        evidence = {"first": first, "last": last, "steps": _STEPS}
        severity = Severity.WARNING if scene.losses else Severity.INFO
        return [finding("loss-plateau", severity, message, evidence, advice)]

    def _losses(self, scene: Scene, lr: float) -> list[float]:
        trial, losses = scene.trial, list[float]()
        assert trial is not None
        with trial.aside():
            optimizer, began = trial.adam(lr), perf_counter()
            for step in range(_STEPS):
                losses.append(trial.step(optimizer))
                if not math.isfinite(losses[-1]) or (step >= 10 and _falls(losses)) or perf_counter() - began > _LONG:
                    break
        return [loss for loss in losses if math.isfinite(loss)]


def _falls(losses: list[float]) -> bool:
    """By a tenth, and beyond the noise from step to step."""
    if len(losses) < 8:
        return False
    first, last = median(losses[:3]), median(losses[-3:])
    steps = [abs(b - a) for a, b in pairwise(losses)]
    return first - last > max(0.1 * abs(first), median(steps))
