"""The scale of inputs and targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from torch import Tensor

from seismograd.detectors.wording import number
from seismograd.preflight.scene import Scene, finding
from seismograd.records import Finding, Severity
from seismograd.replay.numbers import tensors_in

_FAR = 10.0


class Scales:
    """Looks at mean and spread of what goes into the model and of what is to be predicted.

    What the detectors of the run see together with its effect comes first; else, and only as information, an input or
    a numeric target whose values lie far from 0 and 1: beyond 10 in the middle or in spread.
    """

    name: ClassVar[str] = "scales"
    trains: ClassVar[bool] = False
    watched: ClassVar[bool] = True

    def check(self, scene: Scene) -> Iterable[Finding]:
        told = scene.told("unnormalized-input", "unnormalized-target")
        known = {one.id for one in told}
        return [*told, *(one for one in _seen(scene) if one.id not in known)]


def _seen(scene: Scene) -> Iterator[Finding]:
    inputs = [] if scene.call is None else [one for _, one in tensors_in((scene.call.args, scene.call.kwargs))]
    targets = [
        seen.target for seen in scene.losses if seen.name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
    ]
    for kind, word, tensors in (("unnormalized-input", "inputs", inputs), ("unnormalized-target", "targets", targets)):
        for tensor in tensors:
            if not tensor.is_floating_point() or tensor.numel() < 8 or tensor.ndim < 1:
                continue
            middle, spread = _measured(tensor)
            scene.figures.setdefault("scales", {})[word] = {"mean": middle, "std": spread}
            if abs(middle) > _FAR or spread > _FAR:
                message = f"The {word} have a mean of {number(middle)} and a spread of {number(spread)}."
                advice = [f"Scale the {word} to a mean of 0 and a spread of 1, with the training set's own numbers."]
                evidence = {"mean": middle, "std": spread, "limit": _FAR}
                yield finding(kind, Severity.INFO, message, evidence, advice)
            break


def _measured(tensor: Tensor) -> tuple[float, float]:
    wide = tensor.detach().double()
    return float(wide.mean()), float(wide.std())
