"""`saturated-units`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.running import Ema
from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class SaturatedUnits:
    """Most units of a hidden sigmoid or tanh layer sit in its flat regions, on nearly every sample.

    Why it matters
    --------------
    There the slope is next to nothing: hardly any gradient comes through, and the layers before learn slowly or not
    at all.

    How it is judged
    ----------------
    By unit: it is flat when its output is within 1 % of a bound (tanh beyond 0.99 either way) on 90 % of the samples
    of the last looks, and stuck when that is always the same bound, so that it says nothing about the input either.
    At least `share` of a hidden layer's units have to be

    - flat from the first steps on (for `looks` looks, and still), or
    - flat while the loss is no better than it was at the start, or
    - stuck, at any time,

    at `looks` looks in a row, with at least `samples` different samples seen. Units that become certain while the
    loss falls have learned something and are left alone; so are the model's output, attention, and layers of fewer
    than 8 units. Gates may be held open or shut by their biases: of them only those count that are flat from the first
    steps on, now at one bound and now at the other.

    What to try
    -----------
    Scale the inputs and the initial weights down, so that pre-activations lie around zero with a spread of about one;
    put a normalisation layer before the activation; use ReLU-like functions in hidden layers.

    An example
    ----------
    Pixels from 0 to 255, in a network that starts with a tanh:

        x = torch.tanh(self.hidden(image.float()))
        x = torch.tanh(self.hidden((image.float() - 128) / 64))    # instead
    """

    id: ClassVar[str] = "saturated-units"
    needs: ClassVar[tuple[str, ...]] = ("loss|facts/activations",)
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
        "label-out-of-range",
    )

    share: float = 0.75
    looks: int = 5
    samples: int = 64

    def start(self) -> _Checker:
        return _Checker(self)


_FEW = 8


@dataclass(slots=True)
class _Story:
    """What is remembered of one layer."""

    flat: int = 0
    """Looks in a row at which too many were flat."""
    stuck: int = 0
    swings: int = 0
    """Looks in a row at which too many were flat at both bounds."""
    since: int = 0
    """The step after the last look at which it was well."""
    born: bool = True
    """It was flat at its first look, and ever since."""


class _Checker:
    __slots__ = ("_detector", "_first", "_loss", "_stories")

    def __init__(self, detector: SaturatedUnits) -> None:
        self._detector = detector
        self._first, self._loss = math.nan, Ema(9)
        self._stories: dict[str, _Story] = {}

    def check(self, reading: Reading) -> Finding | None:
        loss = reading.scalars.get("loss", math.nan)
        if math.isfinite(loss):
            self._loss.add(loss)
            if math.isnan(self._first):
                self._first = loss
        facts = reading.facts.get("activations")
        if facts is None:
            return None
        samples = reading.facts.get("outputs", {}).get("samples", 0)
        flat = [layer for layer in facts["layers"] if "flat" in layer and self._is_flat(layer, reading.step, samples)]
        return self._found(reading, flat) if flat else None

    def _is_flat(self, layer: Mapping[str, Any], step: int, samples: int) -> bool:
        limits, story = self._detector, self._stories.setdefault(layer["name"], _Story())
        least = limits.share * layer["units"]
        story.flat = story.flat + 1 if layer["flat"] >= least else 0
        story.stuck = story.stuck + 1 if layer["stuck"] >= least else 0
        if not story.flat:
            story.since, story.born = step + 1, False
        if layer["last"] or layer["units"] < _FEW or samples < limits.samples:
            return False
        if layer["gate"]:
            story.swings = story.swings + 1 if layer["flat"] - layer["stuck"] >= least else 0
            return story.born and story.swings >= limits.looks
        harmed = story.born or self._loss.mean > self._first - 0.02 * abs(self._first)
        return story.stuck >= limits.looks or (story.flat >= limits.looks and harmed)

    def _found(self, reading: Reading, flat: list[Mapping[str, Any]]) -> Finding:
        flat.sort(key=lambda layer: -layer["flat"] / layer["units"])
        worst = flat[0]
        story, units, count = self._stories[worst["name"]], worst["units"], worst["flat"]
        place = worst["after"] or worst["name"]
        since = "from the first step on" if story.born else f"since about step {story.since}"
        message = (
            f"{'All' if count == units else f'{count} of the'} {units} units behind `{place}` ({worst['op']}) are"
            f" saturated on nearly every sample, {since}: hardly any gradient comes through."
        )
        if worst["stuck"] >= self._detector.share * units:
            message += " They are stuck at one bound, and say nothing about the input."
        if len(flat) > 1:
            message += f" So are those behind {names([layer['after'] or layer['name'] for layer in flat[1:]])}."
        evidence = {
            "layer": worst["name"],
            "saturated": count,
            "stuck": worst["stuck"],
            "units": units,
            "share": count / units,
            "limit": self._detector.share,
            "since": 0 if story.born else story.since,
            "from_the_start": story.born,
            "layers": [[layer["name"], layer["flat"], layer["units"]] for layer in flat],
        }
        if math.isfinite(self._first):
            evidence |= {"loss": self._loss.mean, "loss_start": self._first}
        advice = [
            f"Bring what goes into the {worst['op']} to around zero with a spread of about one: standardise the inputs,"
            f" or put `nn.LayerNorm({units})` behind `{place}`."
        ]
        if story.born:
            advice.append(f"Start `{place}` with smaller weights: `nn.init.xavier_uniform_({place}.weight)`.")
        else:
            advice.append("Use a lower learning rate from the start: saturated units come back slowly, if at all.")
        advice.append("In hidden layers, ReLU or GELU do not saturate on one side.")
        where = Where(module=place, op=f"aten.{worst['op']}", phase="forward")
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=where)
