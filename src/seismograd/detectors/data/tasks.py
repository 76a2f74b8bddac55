"""What a run is to learn, as its losses tell: labels and guesses, or numbers, and what knowing nothing would cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seismograd.detectors.running import Welford
from seismograd.records import Reading


@dataclass(frozen=True, slots=True)
class Step:
    """The one loss of a step, merged where several batches were accumulated. `moments`: of numbers."""

    name: str
    value: float
    alone: bool
    """Whether backward starts from this loss and from nothing else."""
    weighted: bool
    optimizers: int
    rows: int
    batch: int
    """Samples that went into the model; 0 where that is not known."""
    classes: int
    places: bool
    """Whether there is a label for each place of a sentence or picture."""
    labels: Sequence[int]
    guesses: Sequence[int]
    scores: Sequence[float]
    moments: Sequence[float]
    """Mean and deviation of the targets, then of the outputs."""


def step_of(reading: Reading, kind: str) -> Step | None:
    """The loss of this step where it is of this kind; None where there are several of different kinds or shapes.

    Batches that are of one class each (what is real, what is fake) are adversaries' and are left alone.
    """
    global _newest  # noqa: PLW0603
    known, steps = _newest
    if known is not reading:  # the first of several detectors that ask
        steps = {}
        _newest = (reading, steps)
    if kind not in steps:
        steps[kind] = _step(reading, kind)
    return steps[kind]


_newest: tuple[Reading | None, dict[str, Step | None]] = (None, {})


def _step(reading: Reading, kind: str) -> Step | None:
    facts = reading.facts.get("data")
    losses: Sequence[Mapping[str, Any]] = facts.get("losses", ()) if facts is not None else ()
    if facts is None or not losses or any(loss["kind"] != kind for loss in losses):
        return None
    first = losses[0]
    if any(loss["name"] != first["name"] or loss["shape"] != first["shape"] for loss in losses):
        return None
    if any(not all(loss.get("certain", ())) for loss in losses):
        return None  # the grey levels of a picture, which is to be drawn again
    labels = [[int(label) for label in loss.get("labels", ())] for loss in losses]
    if len(losses) > 1 and kind == "classes" and all(len(set(some)) == 1 for some in labels):
        return None
    moments = [loss.get("moments", ()) for loss in losses]
    moments = [some for some in moments if len(some) == len(moments[0])]
    return Step(
        first["name"],
        sum(loss["value"] for loss in losses) / len(losses),
        all(loss.get("alone", False) for loss in losses),
        any(loss["weighted"] for loss in losses),
        int(facts.get("optimizers", 1)),
        first["rows"],
        first["batch"],
        first.get("classes", 0),
        math.prod(first["shape"]) > 1,
        [label for some in labels for label in some],
        [int(guess) for loss in losses for guess in loss.get("guesses", ())],
        [score for loss in losses for score in loss.get("scores", ())],
        [sum(column) / len(column) for column in zip(*moments, strict=True)],
    )


class Labels:
    """Counts labels; those below zero stand for none."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.total = 0

    def add(self, labels: Sequence[int]) -> None:
        known = [label for label in labels if label >= 0]
        if len(self.counts) < 4096:
            self.counts.update(known)
            self.total += len(known)

    @property
    def entropy(self) -> float:
        """In nats: the loss of someone who knows how often each label comes, and nothing else."""
        if not self.total:
            return math.nan
        shares = [count / self.total for count in self.counts.values() if count]
        return -sum(share * math.log(share) for share in shares)

    @property
    def mixture(self) -> float:
        """How often two labels drawn at random differ."""
        return 1.0 - sum((count / self.total) ** 2 for count in self.counts.values()) if self.total else 0.0

    @property
    def commonest(self) -> tuple[int, float]:
        """The label that comes most often, and its share."""
        if not self.total:
            return -1, 0.0
        label, count = max(self.counts.items(), key=lambda item: item[1])
        return label, count / self.total


class Numbers:
    """Mean and deviation of all targets so far, from those of batches."""

    __slots__ = ("_means", "_variances")

    def __init__(self) -> None:
        self._means, self._variances = Welford(), Welford()

    def add(self, mean: float, std: float) -> None:
        if math.isfinite(mean) and math.isfinite(std):
            self._means.add(mean)
            self._variances.add(std * std)

    @property
    def mean(self) -> float:
        return self._means.mean

    @property
    def std(self) -> float:
        return math.sqrt(self._variances.mean + self._means.std**2)

    @property
    def size(self) -> float:
        """The root mean square."""
        return math.hypot(self.mean, self.std)


def cost(name: str, size: float) -> float:
    """What a loss of this kind is where the output is off by about `size`."""
    return size * size if name == "mse_loss" else 0.8 * size
