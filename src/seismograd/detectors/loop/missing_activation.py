"""`missing-activation`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity, Where

Stack = Mapping[str, Any]


@dataclass(frozen=True)
class MissingActivation:
    """Layers are stacked without a non-linearity between them.

    Why it matters
    --------------
    Two linear layers in a row can do no more than one: their product is a single matrix. A deep network without
    activations is a linear model that takes longer to train, whatever its width.

    How it is judged
    ----------------
    By the autograd graph, at `looks` looks: a layer is fed by another one with nothing but views, dropout, biases and
    constants between them. A warning if that holds for the whole model (batch norm and average pooling count as linear
    there), or for `long` fully connected layers in a row; an info for a pair. A chain whose narrowest inner layer is
    narrower than both its ends (an autoencoder, a low-rank factor, LoRA) is meant, and so are convolutions in a row in
    a model that has non-linearities elsewhere, and layers whose output is used twice.

    What to try
    -----------
    Put an activation between them, or leave one layer of the two out.

    An example
    ----------
    A network that is only a matrix:

        nn.Sequential(nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 4))
        nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))    # instead
    """

    id: ClassVar[str] = "missing-activation"
    needs: ClassVar[tuple[str, ...]] = ("facts/loss",)
    follows: ClassVar[tuple[str, ...]] = ()

    looks: int = 2
    long: int = 3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_counts", "_detector")

    def __init__(self, detector: MissingActivation) -> None:
        self._detector = detector
        self._counts: dict[tuple[str, ...], int] = {}

    def check(self, reading: Reading) -> Finding | None:
        seen: list[tuple[Severity, Stack]] = []
        for stack in reading.facts["loss"].get("stacks", ()):
            severity = self._judged(stack)
            key = tuple(stack["layers"])
            if severity is None or (len(self._counts) > 64 and key not in self._counts):
                continue
            self._counts[key] = self._counts.get(key, 0) + 1
            if self._counts[key] >= self._detector.looks:
                seen.append((severity, stack))
        if not seen:
            return None
        severity, stack = max(seen, key=lambda each: (each[0].weight, len(each[1]["layers"])))
        return self._told(reading, severity, stack)

    def _judged(self, stack: Stack) -> Severity | None:
        first, *inner, last = stack["widths"]
        if min(inner) < min(first, last) or not first or not all(stack["layers"]):
            return None
        if stack["whole"]:
            return Severity.WARNING
        if not stack["plain"] or "Convolution" in stack["kinds"]:
            return None
        return Severity.WARNING if len(stack["layers"]) >= self._detector.long else Severity.INFO

    def _told(self, reading: Reading, severity: Severity, stack: Stack) -> Finding:
        layers = [name.removesuffix(".weight") for name in stack["layers"]]
        between = f"no non-linearity lies between {names(layers, 4)}"
        if stack["whole"]:
            message = f"The whole model is linear: {between}. It can do no more than a single layer."
        else:
            message = f"Layers are stacked without an activation: {between}. Together they do no more than one of them."
        evidence = {
            "layers": layers,
            "widths": list(stack["widths"]),
            "whole": stack["whole"],
            "looks": self._detector.looks,
        }
        advice = [f"Put an activation, `nn.ReLU()` say, after {names(layers[:-1], 4)}."]
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=Where(module=layers[0]))
