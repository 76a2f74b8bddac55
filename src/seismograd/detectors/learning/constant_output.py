"""`constant-output`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class ConstantOutput:
    """The model says the same whatever goes in.

    Why it matters
    --------------
    Nothing of the input reaches the output: the model can learn at most the average of its targets, and nothing that
    happens later in the run changes that.

    How it is judged
    ----------------
    The samples of a batch are compared as they go into the outermost model and as they come out. The output is
    constant where no feature of it differs from sample to sample by more than `spread` of its size, although the
    inputs differ, at `looks` looks in a row, and the difference is not growing: a head that starts at zero gives the
    same for all until its first steps. A softmax over an axis with a single element, at the end of the model or in
    the loss, is always 1: said at the third look. Batches of one sample, scalars (losses), models with one fixed
    input, and models of whose outputs only some are constant are left alone.

    What to try
    -----------
    See where it stops to differ: print `x.std(0).max()` after each layer. A dead layer, weights at zero, a norm over
    the wrong axis, or saturated units make it so. For one output unit use a sigmoid (`BCEWithLogitsLoss`), or as
    many outputs as there are classes.

    An example
    ----------
    One output for two classes, and a softmax over it:

        return torch.softmax(self.head(x), dim=1)    # self.head = nn.Linear(64, 1): always 1
        return self.head(x).squeeze(1)               # instead, with nn.BCEWithLogitsLoss()
    """

    id: ClassVar[str] = "constant-output"
    needs: ClassVar[tuple[str, ...]] = ("facts/outputs",)
    follows: ClassVar[tuple[str, ...]] = (
        "bad-initialization",
        "lr-jump",
        "lr-too-high",
        "weight-decay-dominates",
        "gradient-explosion",
        "gradient-vanishing",
        "dead-units",
        "saturated-units",
        "unnormalized-input",
        "unnormalized-target",
        "missing-zero-grad",
        "nonfinite-input",
        "nonfinite-parameter",
        "broadcast-loss",
        "loss-input-mismatch",
        "output-range",
    )

    spread: float = 1e-5
    looks: int = 8

    def start(self) -> _Checker:
        return _Checker(self)


@dataclass(slots=True)
class _Story:
    """What is remembered of one model."""

    constant: int = 0
    """Looks in a row at which its output did not differ."""
    first: float = 0.0
    """By how much it differed at the first of them."""
    since: int = 0
    varied: bool = False
    """Its output did differ once."""


class _Checker:
    __slots__ = ("_detector", "_singles", "_stories")

    def __init__(self, detector: ConstantOutput) -> None:
        self._detector = detector
        self._singles = 0
        self._stories: dict[str, _Story] = {}

    def check(self, reading: Reading) -> Finding | None:
        facts = reading.facts["outputs"]
        self._singles = self._singles + 1 if facts["singles"] else 0
        constant = [model for model in facts["models"] if self._is_constant(model, reading.step)]
        if self._singles >= 3:
            return self._single(reading, facts["singles"][0])
        return self._found(reading, constant[0]) if constant else None

    def _is_constant(self, model: Mapping[str, Any], step: int) -> bool:
        limits, story = self._detector, self._stories.setdefault(model["name"], _Story())
        if not model["inputs"] > 0.0:
            return False
        if not model["spread"] <= limits.spread:
            story.constant, story.since, story.varied = 0, step + 1, True
            return False
        if not story.constant:
            story.first = model["spread"]
        story.constant += 1
        growing = model["spread"] > 2.0 * max(story.first, _ROUNDING)
        return story.constant >= limits.looks and not growing

    def _single(self, reading: Reading, single: Mapping[str, Any]) -> Finding:
        op = "log_softmax" if "log" in single["op"] else "softmax"
        shape = tuple(single["shape"])
        place = f" in `{single['module']}`" if single["module"] else ""
        message = (
            f"The {op}{place} runs over an axis with a single element (shape {shape}): it gives"
            f" {'0' if op == 'log_softmax' else '1'} for every sample, whatever goes in."
        )
        advice = [
            "With one output for two classes use `nn.BCEWithLogitsLoss()` (or a sigmoid) instead of softmax or"
            " `nn.CrossEntropyLoss()`.",
            "Otherwise give the last layer one output for each class, and `dim` the axis of the classes.",
        ]
        evidence = {"shape": list(shape), "op": op, "limit": 1, "reason": "softmax-of-one"}
        where = Where(module=single["module"] or None, op=single["op"], phase="forward")
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)

    def _found(self, reading: Reading, model: Mapping[str, Any]) -> Finding:
        story = self._stories[model["name"]]
        spread = model["spread"]
        alike = f"to within {number(spread)} of its size" if spread > 0.0 else "to the last bit"
        since = f"since step {story.since}" if story.varied else "from the first step on"
        message = (
            f"`{model['name']}` gives the same output for all {model['rows']} samples of a batch, {alike}, {since},"
            " although the inputs differ."
        )
        evidence = {
            "model": model["name"],
            "spread": spread,
            "limit": self._detector.spread,
            "size": model["size"],
            "rows": model["rows"],
            "since": story.since if story.varied else 0,
            "from_the_start": not story.varied,
            "reason": "collapse" if story.varied else "start",
        }
        advice = ["Print `x.std(0).max()` after each layer, to see behind which one the samples are all alike."]
        if story.varied:
            advice.append("Start anew with a lower learning rate: what has collapsed does not come back by itself.")
        else:
            advice.append(
                "Check for weights that are all zero, a norm over the wrong axis, and an output activation that"
                " is stuck at its bound."
            )
        where = Where(module=model["name"], phase="forward")
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)


_ROUNDING = 1e-6
"""What equal samples may differ by, in a kernel that takes some of them apart."""
