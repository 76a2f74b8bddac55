"""`dead-units`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found, names, number, rates
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class DeadUnits:
    """Most units of a layer never fire, on any sample.

    Why it matters
    --------------
    A ReLU that is zero on every sample passes nothing on and gets no gradient: it does not come back by itself. A
    layer of them cuts the network in two, and what lies before it stops learning.

    How it is judged
    ----------------
    By unit, not by value: half of a healthy ReLU layer is zero at any moment, but not the same half. A unit is an
    output of the layer before (a channel of a convolution, a feature of a linear layer), and dead when it fired on
    none of the last 256 samples that were looked at. Modules and functional calls count alike; smooth functions (GELU,
    SiLU, Mish) are dead where they are flat at zero.

    - No unit of the layer fires, at `looks` looks in a row: critical if everything the model computes has to pass
      through it, a warning otherwise (a branch, a tower of several).
    - At least `share` of the units are dead at `looks` looks in a row, more than chance would leave on the wrong
      side of zero, and at least `samples` different samples were seen: a warning.

    Some dead units are normal: inputs of few dimensions leave up to half of a layer at rest from the start. Layers of
    fewer than 16 units, the outputs of the model, and gates (squeeze-and-excitation) are judged only as a whole, or
    not at all.

    What to try
    -----------
    Where units died in training: a lower learning rate, warm-up, clipping. Where they were dead from the start: the
    initial biases and the scale and sign of what goes in. `nn.LeakyReLU` or `nn.GELU` keeps a gradient either way.

    An example
    ----------
    A step so large that no sample brings a unit above zero again:

        optimizer = SGD(model.parameters(), lr=3.0, momentum=0.9)
        optimizer = SGD(model.parameters(), lr=0.03, momentum=0.9)    # instead
    """

    id: ClassVar[str] = "dead-units"
    needs: ClassVar[tuple[str, ...]] = ("lr|facts/activations",)
    follows: ClassVar[tuple[str, ...]] = (
        "bad-initialization",
        "lr-jump",
        "lr-too-high",
        "unnormalized-input",
        "unnormalized-target",
        "missing-zero-grad",
        "accumulation-mismatch",
        "gradient-explosion",
        "update-ratio-high",
        "nonfinite-input",
        "nonfinite-parameter",
        "output-range",
        "loss-input-mismatch",
    )

    share: float = 0.75
    looks: int = 5
    samples: int = 64

    def start(self) -> _Checker:
        return _Checker(self)


_FEW = 16
"""A layer of fewer units is judged as a whole only."""


@dataclass(slots=True)
class _Story:
    """What is remembered of one layer."""

    silent: int = 0
    """Looks in a row at which no unit fired."""
    many: int = 0
    """Looks in a row at which too many were dead."""
    since: int = 0
    """The step after the last look at which it was well."""
    lr: float = 0.0
    """The highest learning rate between that look and the next."""


class _Checker:
    __slots__ = ("_detector", "_lr", "_stories")

    def __init__(self, detector: DeadUnits) -> None:
        self._detector = detector
        self._lr = 0.0  # the highest since the last look
        self._stories: dict[str, _Story] = {}

    def check(self, reading: Reading) -> Finding | None:
        self._lr = max([self._lr, *rates(reading.scalars)])
        facts = reading.facts.get("activations")
        if facts is None:
            return None
        samples = reading.facts.get("outputs", {}).get("samples", 0)
        dead = [layer for layer in facts["layers"] if "dead" in layer and self._is_dead(layer, reading.step, samples)]
        self._lr = 0.0
        return self._found(reading, dead, facts["window"]) if dead else None

    def _is_dead(self, layer: Mapping[str, Any], step: int, samples: int) -> bool:
        limits, story = self._detector, self._stories.setdefault(layer["name"], _Story())
        units, dead = layer["units"], layer["dead"]
        chance = 0.5 * units + 1.75 * math.sqrt(units)  # half a layer may be at rest, and three and a half sigma more
        many = units >= _FEW and dead >= limits.share * units and dead > chance
        story.silent = 0 if layer["fired"] else story.silent + 1
        story.many = story.many + 1 if many else 0
        if layer["fired"] and not many:
            story.since = step + 1
        elif 1 in (story.silent, story.many):
            story.lr = self._lr
        if layer["gate"]:
            return False
        if self._is_silent(layer):
            return layer["blocks"] is True or (layer["blocks"] is False and units >= _FEW)
        return story.many >= limits.looks and samples >= limits.samples and not layer["last"]

    def _is_silent(self, layer: Mapping[str, Any]) -> bool:
        """Whether no unit of it has fired for long enough."""
        return self._stories[layer["name"]].silent >= self._detector.looks and layer["still"] >= _AT_LEAST

    def _count(self, layer: Mapping[str, Any]) -> int:
        return int(layer["units"] if self._is_silent(layer) else layer["dead"])

    def _found(self, reading: Reading, dead: list[Mapping[str, Any]], window: int) -> Finding:
        dead.sort(
            key=lambda layer: (not (self._is_silent(layer) and layer["blocks"]), -self._count(layer) / layer["units"])
        )
        worst = dead[0]
        story, units = self._stories[worst["name"]], worst["units"]
        whole, count = self._is_silent(worst), self._count(worst)
        samples = worst["still"] if whole else window
        born_dead = worst["never"] > 0.9 * count
        place = worst["after"] or worst["name"]
        many = "The only unit" if units == 1 else f"{'All' if whole else f'{count} of the'} {units} units"
        message = (
            f"{many} behind `{place}` ({worst['op']}) {'is' if units == 1 else 'are'} dead and fired on none of the"
            f" last {samples} samples,"
        )
        message += " from the first step on." if born_dead else f" since about step {story.since}."
        if not born_dead and story.lr > 0.0:
            message = f"{message[:-1]}, at lr {number(story.lr)}."
        severed = whole and worst["blocks"]
        if severed:
            message += " Nothing of the input comes through, and no layer before it gets a gradient."
        if len(dead) > 1:
            message += f" So are those behind {names([layer['after'] or layer['name'] for layer in dead[1:]])}."
        evidence = {
            "layer": worst["name"],
            "dead": count,
            "units": units,
            "share": count / units,
            "limit": self._detector.share,
            "samples": samples,
            "since": 0 if born_dead else story.since,
            "from_the_start": born_dead,
            "blocks": severed,
            "layers": [[layer["name"], self._count(layer), layer["units"]] for layer in dead],
        }
        if not born_dead and story.lr > 0.0:
            evidence["lr"] = story.lr
        where = Where(module=place, op=f"aten.{worst['op']}", phase="forward")
        severity = Severity.CRITICAL if severed else Severity.WARNING
        advice = _advice(worst, place, story.lr, born_dead)
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=where)


_AT_LEAST = 32
"""Samples without which nothing is said, even of a layer that is silent as a whole."""


def _advice(layer: Mapping[str, Any], place: str, lr: float, born_dead: bool) -> list[str]:
    if born_dead:
        advice = [
            f"Look at what goes into `{place}`, and at its bias: `{place}.bias` far below zero, or inputs of one sign"
            " against weights of the other, keep every unit below zero. `nn.init.zeros_(bias)` is safe."
        ]
        if layer["last"]:
            advice = [f"Leave out the {layer['op']} behind `{place}`: as the model's output it can die as a whole."]
    else:
        advice = ["Start anew: dead units do not come back. Use a lower learning rate"]
        advice[0] += f" (try {lr / 10:g}), warm it up, or clip gradients." if lr > 0.0 else ", warm it up, or clip."
    if layer["op"] == "relu":
        advice.append("`nn.LeakyReLU(0.01)` or `nn.GELU()` in its place keeps a gradient below zero.")
    return advice
