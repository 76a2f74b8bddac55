"""The learning rate against the range test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import ClassVar

from seismograd.detectors.wording import number
from seismograd.learning_rate import LearningRateFinder
from seismograd.preflight.scene import Scene, finding
from seismograd.preflight.trial import CannotCheckError
from seismograd.records import Finding, Severity

_SECONDS = 5.0
_BEYOND = 10.0
_SURE = 0.8
_FEW = 4


class Rate:
    """Raises the learning rate step by step on this batch and sees where the loss falls, and everything is put back.

    A rate at which some steps with the user's optimizer make the loss ten times what it was is too high
    (`lr-too-high`). Else only a rate ten times beyond the interval in which it falls is told, if the test is sure of
    it: above as a warning, below as information (`lr-too-low`), for fine-tuning takes tiny ones on purpose.
    """

    name: ClassVar[str] = "learning rate"
    trains: ClassVar[bool] = True
    watched: ClassVar[bool] = False

    def check(self, scene: Scene) -> Iterable[Finding]:
        trial = scene.trial
        assert trial is not None
        if trial.optimizer is None:
            raise CannotCheckError("no optimizer was given")
        groups = trial.optimizer.param_groups
        lr = max(float(group.get("initial_lr", group["lr"])) for group in groups)
        if lr <= 0:
            raise CannotCheckError("the learning rate is 0 at present")
        steps = int(min(80, max(24, _SECONDS / max(trial.rehearsal.seconds, 1e-4))))
        finder = LearningRateFinder(num_steps=steps)
        with trial.aside():
            result = finder.range_test_model(trial.model, trial.optimizer, trial.loss_fn, trial)
        told = ("suggested_lr", "interval", "confidence", "message")
        scene.figures["learning_rate"] = {"lr": lr, **{name: result[name] for name in told}}
        seen = scene.told("lr-too-high") or _rose(trial.rehearsal.losses, lr)
        if seen or not result["clear"] or result["confidence"] < _SURE:
            return seen
        low, high = result["interval"]
        evidence = {"lr": lr, "interval": [low, high], "confidence": result["confidence"]}
        between = f"the loss of this batch falls between {number(low)} and {number(high)}"
        if lr > _BEYOND * high:
            message = f"The learning rate of {number(lr)} is far too high: {between}."
            advice = [f"Use about {number(result['suggested_lr'])}."]
            return [finding("lr-too-high", Severity.WARNING, message, evidence, advice)]
        if lr < low / _BEYOND:
            message = f"The learning rate of {number(lr)} is very low: {between}."
            advice = [f"Use about {number(result['suggested_lr'])}, unless a pretrained model is to change little."]
            return [finding("lr-too-low", Severity.INFO, message, evidence, advice)]
        return []


def _rose(losses: Sequence[float], lr: float) -> list[Finding]:
    """The loss of one batch that is trained on, step after step."""
    first, later = (losses[0], median(losses[1:])) if len(losses) > _FEW else (0.0, 0.0)
    if not 0.0 < first < later / _BEYOND < math.inf:
        return []
    message = (
        f"The learning rate of {number(lr)} is far too high: in {len(losses)} steps on one batch its loss goes from"
        f" {number(first)} to {number(later)}."
    )
    evidence = {"lr": lr, "first": first, "later": later, "steps": len(losses)}
    return [finding("lr-too-high", Severity.WARNING, message, evidence, ["Use a tenth of it, or less."])]
