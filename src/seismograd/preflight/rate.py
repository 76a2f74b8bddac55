"""The learning rate against the range test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from seismograd.detectors.wording import number
from seismograd.learning_rate import LearningRateFinder
from seismograd.preflight.scene import CannotCheckError, Scene, finding
from seismograd.records import Finding, Severity

_SECONDS = 5.0
_BEYOND = 10.0
_SURE = 0.8


class Rate:
    """Raises the learning rate step by step on this batch and sees where the loss falls, and everything is put back.

    Only a rate ten times beyond the interval in which it falls is told, if the test is sure of it: above as a warning
    (`lr-too-high`), below as information (`lr-too-low`), for fine-tuning takes tiny ones on purpose.
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
        if not result["clear"] or result["confidence"] < _SURE:
            return []
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
