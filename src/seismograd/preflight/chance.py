"""The first loss is what chance would give."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

from seismograd.detectors.wording import number
from seismograd.preflight.scene import Scene, SeenLoss, finding
from seismograd.records import Finding, Severity

_TIMES, _MORE = 3.0, 2.0


class Chance:
    """Compares the first loss with that of a model that knows nothing.

    For classes that is the logarithm of their number, for yes and no that of 2, for squared errors the mean square of
    the targets. A fresh model that costs three times as much (ten times, for squares) begins with outputs that are far
    too large: `bad-initialization`. Less than chance is fine: it may have learned before.
    """

    name: ClassVar[str] = "first loss"
    trains: ClassVar[bool] = False
    watched: ClassVar[bool] = False

    def check(self, scene: Scene) -> Iterable[Finding]:
        for seen in scene.losses:
            expected, why = _expected(seen)
            value = _per_sample(seen)
            if expected is None or value is None or not math.isfinite(value):
                continue
            scene.figures["first_loss"] = {"loss": value, "chance": expected}
            squares = seen.name == "mse_loss"
            if value > (10 * expected if squares else max(_TIMES * expected, expected + _MORE)):
                message = (
                    f"The first loss is {number(value)}, where {why} would give {number(expected)}:"
                    " the outputs begin far too large."
                )
                evidence = {"loss": value, "chance": expected, "times": value / expected}
                advice = [
                    "Make the last layer start small (`nn.init.normal_(head.weight, std=0.01)`), scale the inputs."
                ]
                yield finding("bad-initialization", Severity.WARNING, message, evidence, advice)
                return


def _expected(seen: SeenLoss) -> tuple[float | None, str]:
    given, target = seen.given, seen.target
    if seen.name in ("cross_entropy_loss", "nll_loss_nd") and given.ndim:
        classes = int(given.shape[1] if given.ndim > 1 else given.shape[0])
        return (math.log(classes), f"chance among {classes} classes") if classes > 1 else (None, "")
    if seen.name.startswith("binary_cross_entropy"):
        return math.log(2.0), "tossing a coin"
    if seen.name == "mse_loss" and given.shape == target.shape and target.numel():
        squares = float(target.double().square().mean())
        return (squares, "predicting zero") if squares > 0 else (None, "")
    return None, ""


def _per_sample(seen: SeenLoss) -> float | None:
    if seen.reduction == "none" or seen.value.numel() != 1:
        return None
    value = float(seen.value)
    return value / max(1, seen.target.numel()) if seen.reduction == "sum" else value
