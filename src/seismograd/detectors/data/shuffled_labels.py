"""`shuffled-labels`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.data.tasks import Labels, Step, step_of
from seismograd.detectors.running import Welford, Window
from seismograd.detectors.tables import column
from seismograd.detectors.wording import found, number, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class ShuffledLabels:
    """Labels have nothing to do with their inputs: the model tries, and learns nothing but how often each comes.

    Why it matters
    --------------
    Inputs and labels that were put in different orders (one shuffled, the other not; files sorted differently) still
    have the right shapes and classes. Nothing fails. Training goes on at chance, or learns by heart.

    How it is judged
    ----------------
    Where backward starts from a classification loss and from nothing else, one optimizer steps, and inputs are
    numbers. In the first 2,000 samples that were looked at, none twice (at least `samples`), no feature of the input
    (single values, waves through two or through many of them) differs between classes by more than chance allows;
    where one does, nothing is said. And either

    - for `patience` steps on end the loss stays within `near` of the entropy of the labels, what knowing only their
      frequencies costs, although steps are large enough to learn and the guesses vary (where the run ends sooner, half
      as many steps are enough, and twice as many samples are asked for), or
    - the training loss falls to less than `learned` of that entropy, and every one of at least five validations
      is above it: what is learned is learned by heart.

    What to try
    -----------
    Look at ten samples with their labels. Shuffle pairs, never one of the two. If they do belong together, the
    inputs lost what tells them apart on their way to the model (a wrong normalisation, all zeros), the features cannot
    tell the classes apart, or the model is too weak: train it on 20 samples, which any model can learn by heart, and
    on labels that you make up from the inputs, which only a broken path could keep it from learning.

    An example
    ----------
    Only the inputs are shuffled:

        x = x[torch.randperm(len(x))]                            # y stays as it was
        order = torch.randperm(len(x)); x, y = x[order], y[order]    # instead
    """

    id: ClassVar[str] = "shuffled-labels"
    needs: ClassVar[tuple[str, ...]] = ("loss|facts/data|val_loss",)
    follows: ClassVar[tuple[str, ...]] = (
        "missing-step",
        "lost-gradient",
        "lr-too-high",
        "lr-too-low",
        "bad-initialization",
        "gradient-vanishing",
        "dead-units",
        "saturated-units",
        "constant-output",
        "unnormalized-input",
        "nonfinite-input",
        "double-softmax",
        "loss-input-mismatch",
        "weight-decay-dominates",
        "broadcast-loss",
        "output-range",
        "missing-activation",
        "label-out-of-range",
    )

    samples: int = 500
    patience: int = 250
    near: float = 0.02
    learned: float = 0.96

    def start(self) -> _Checker:
        return _Checker(self)


_BLOCK = 20


class _Checker:
    __slots__ = (
        "_block",
        "_detector",
        "_guesses",
        "_labels",
        "_moves",
        "_related",
        "_samples",
        "_since",
        "_stretch",
        "_trained",
        "_validations",
    )

    def __init__(self, detector: ShuffledLabels) -> None:
        self._detector = detector
        self._labels = Labels()
        self._guesses = Labels()
        self._block: list[float] = []
        self._since = -1
        self._related: bool | None = None
        self._samples = 0
        self._moves = math.nan
        self._trained, self._stretch = Window(2 * _BLOCK), Welford()
        self._validations: list[float] = []

    def check(self, reading: Reading) -> Finding | None:
        if "update" in reading.tensors:
            ratios = column(reading.tensors["update"], "ratio")
            if ratios is not None and len(ratios):
                finite = [float(ratio) for ratio in ratios if math.isfinite(ratio)]
                self._moves = max(finite, default=math.nan)
        if "val_loss" in reading.scalars:
            self._validations = [*self._validations[-7:], reading.scalars["val_loss"]]
            return self._by_heart(reading)
        if reading.facts.get("data", {}).get("over"):
            return self._never_learned(reading)
        step = step_of(reading, "classes")
        if step is None or not step.alone or step.weighted or step.optimizers > 1 or not math.isfinite(step.value):
            return None
        if step.rows < 8 or len(set(step.labels)) == len(step.labels):  # each its own class: contrastive
            return None
        self._relate(reading)
        self._labels.add(step.labels)
        self._trained.add(step.value)
        return self._at_chance(reading, step)

    def _relate(self, reading: Reading) -> None:
        """Whether any feature differs between classes by more than chance allows."""
        relation = reading.facts["data"].get("relation")
        if relation is None:
            return
        self._samples, free = relation["samples"], max(1, relation["classes"] - 1)
        chance = free + 3.5 * math.sqrt(2.0 * free) + 8.0  # the largest of a hundred, in 49 of 50 runs
        self._related = relation["strength"] * self._samples > chance

    @property
    def _is_unrelated(self) -> bool:
        return self._related is False and self._samples >= self._detector.samples

    def _at_chance(self, reading: Reading, step: Step) -> Finding | None:
        limits = self._detector
        if not self._block:
            self._guesses = Labels() if self._since < 0 else self._guesses
            self._since = reading.step if self._since < 0 else self._since
        self._block.append(step.value)
        self._guesses.add(step.guesses)
        if len(self._block) < _BLOCK:
            return None
        mean = sum(self._block) / _BLOCK
        spread = math.sqrt(sum((value - mean) ** 2 for value in self._block) / _BLOCK)
        self._block = []
        self._stretch.add(mean)
        entropy = self._labels.entropy
        error = max(limits.near * entropy, 2.0 * spread / math.sqrt(_BLOCK))
        if not -error <= mean - entropy <= 2.0 * error + 0.02 * entropy:
            self._since = -1
            self._stretch.clear()
            return None
        return self._stays(reading, limits.patience, limits.samples)

    def _never_learned(self, reading: Reading) -> Finding | None:
        """The run is over: it will not learn any more."""
        if self._since < 0:
            return None
        return self._stays(reading, self._detector.patience // 2, 2 * self._detector.samples)

    def _stays(self, reading: Reading, patience: int, samples: int) -> Finding | None:
        limits, entropy, mean = self._detector, self._labels.entropy, self._stretch.mean
        steps = reading.step - self._since
        if steps < patience or abs(mean - entropy) > limits.near * entropy or self._stretch.count < 4:
            return None
        if not self._is_unrelated or self._samples < samples or not self._tries():
            return None
        return self._found(
            reading,
            f"for {steps} steps the loss has been {number(mean)}, and {number(entropy)} is what knowing only how often"
            " each label comes would cost",
            {"loss": mean, "entropy": entropy, "steps": steps, "limit": limits.near},
        )

    def _tries(self) -> bool:
        """Whether steps are large enough to learn by, and the guesses are not always the same."""
        return self._moves > 1e-4 and self._guesses.commonest[1] < 0.98

    def _by_heart(self, reading: Reading) -> Finding | None:
        limits, values = self._detector, self._validations
        entropy = self._labels.entropy
        if len(values) < 5 or not self._is_unrelated or len(self._trained) < _BLOCK:
            return None
        if self._trained.median > limits.learned * entropy or min(values) < 0.995 * entropy:
            return None
        if values[-1] < 1.03 * entropy:
            return None
        return self._found(
            reading,
            f"the training loss fell to {number(self._trained.median)} while validation went to {number(values[-1])},"
            f" and never below {number(entropy)}, what knowing only how often each label comes would cost",
            {"loss": self._trained.median, "val_loss": values[-1], "entropy": entropy, "limit": limits.learned},
        )

    def _found(self, reading: Reading, effect: str, evidence: dict[str, float]) -> Finding:
        message = (
            f"Labels seem to have nothing to do with their inputs: {effect}; in {self._samples} samples no feature"
            " differs between classes."
        )
        lr = max(rates(reading.scalars), default=math.nan)
        advice = [
            "Look at ten inputs next to their labels. Shuffle both by one order: `x, y = x[order], y[order]`; match"
            " files by name, not by their place in two lists.",
            "If they do belong together, the inputs have lost what tells them apart, or the model is too weak: train it"
            " on labels made up from the inputs (`(x.flatten(1).mean(1) > 0).long()`). If it learns those, the labels"
            " are wrong.",
        ]
        more = {"lr": lr} if lr > 0 else {}
        return found(self._detector, reading, Severity.WARNING, message, {**evidence, **more}, advice=advice)
