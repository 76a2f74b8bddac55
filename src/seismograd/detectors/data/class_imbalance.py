"""`class-imbalance`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.data.tasks import Labels, Step, step_of
from seismograd.detectors.running import Welford
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class ClassImbalance:
    """One class has nearly all labels, and the model says that class always.

    Why it matters
    --------------
    Where 97 % of the samples are of one class, saying so always is right 97 times in 100, and useless. Accuracy looks
    fine from the first epoch on, and the class that matters is never found.

    How it is judged
    ----------------
    By a few labels and guesses of each batch, of some places where each place of a picture has a label. One class has
    more than `share` of the labels. In the last `window` readings, with at least `others` labels of other classes among
    them and after `patience` steps, every single guess was that class. It is a warning where the loss has stopped
    falling, is not below `gain` of what knowing only the frequencies costs, and scores do not tell the classes apart.
    Where they do (clicks, fraud: the ranking is good and no probability ever passes a half) it is worth knowing, no
    more. Runs with class weights, with several labels for each sample, or with grey levels for labels are left alone.

    What to try
    -----------
    Weigh the classes in the loss, or draw them evenly (`WeightedRandomSampler`). Judge by recall or area under the
    curve, not by accuracy, and choose the threshold on validation data.

    An example
    ----------
    Fraud, one case in 50:

        loss_fn = nn.BCEWithLogitsLoss()                                       # always "no fraud"
        loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(49.0))          # instead
    """

    id: ClassVar[str] = "class-imbalance"
    needs: ClassVar[tuple[str, ...]] = ("facts/data",)
    follows: ClassVar[tuple[str, ...]] = (
        "lr-too-high",
        "lr-too-low",
        "shuffled-labels",
        "unnormalized-input",
        "bad-initialization",
        "dead-units",
        "missing-step",
        "constant-output",
        "double-softmax",
        "loss-input-mismatch",
        "label-out-of-range",
    )

    share: float = 0.85
    window: int = 30
    others: int = 12
    patience: int = 100
    gain: float = 0.9

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_first", "_labels", "_run", "_steps")

    def __init__(self, detector: ClassImbalance) -> None:
        self._detector = detector
        self._labels = Labels()
        self._steps: deque[Step] = deque(maxlen=3 * detector.window)
        self._first = -1
        self._run = 0  # so many steps on end all guesses were the commonest class

    def check(self, reading: Reading) -> Finding | None:
        step, limits = step_of(reading, "classes"), self._detector
        if step is None or not step.alone or step.weighted or step.rows < 8:
            return None
        if not step.guesses or len(step.guesses) != len(step.labels):
            return None
        if not math.isfinite(step.value):
            self._steps.clear()
            self._run = 0
            return None
        if self._first < 0:
            self._first = reading.step
        self._labels.add(step.labels)
        self._steps.append(step)
        common, share = self._labels.commonest
        self._run = self._run + 1 if all(guess == common for guess in step.guesses) else 0
        if not limits.share <= share < 1.0 or reading.step - self._first < limits.patience:
            return None
        return self._judge(reading, common, share) if self._run >= limits.window else None

    def _judge(self, reading: Reading, common: int, share: float) -> Finding | None:
        limits = self._detector
        last = list(self._steps)[-limits.window :]
        missed = sum(label != common for step in last for label in step.labels)
        if missed < limits.others:
            return None
        half = len(self._steps) // 2
        before, after = Welford(), Welford()
        for at, step in enumerate(self._steps):
            (before if at < half else after).add(step.value)
        entropy = self._labels.entropy
        if after.mean > 1.2 * entropy:
            return None  # it has not even learned how often they come
        error = math.sqrt((before.std**2 + after.std**2) / half)
        falls = before.mean - after.mean > 2.0 * error + 0.01 * before.mean
        blind = not falls and after.mean > limits.gain * entropy and _is_blind(list(self._steps), common)
        each = "place" if last[-1].places else "sample"
        message = (
            f"The model says class {common} for every {each}: {number(100 * share)} % of the labels are of that class,"
            f" and in the last {len(last)} readings all {missed} of the others were missed."
        )
        if blind:
            message += (
                f" The loss is {number(after.mean)}, and {number(entropy)} is what knowing only the frequencies costs."
            )
        else:
            message += " It may still learn to tell them apart, or the threshold may be all that is wrong."
        evidence = {
            "class": common,
            "share": share,
            "limit": limits.share,
            "missed": missed,
            "loss": after.mean,
            "entropy": entropy,
        }
        return found(
            limits,
            reading,
            Severity.WARNING if blind else Severity.INFO,
            message,
            evidence,
            advice=_advice(last[-1], share),
        )


def _is_blind(steps: list[Step], common: int) -> bool:
    """Whether the scores of the commonest class and of the others are alike, as far as 20 of the others can tell."""
    one, other = Welford(), Welford()
    for step in steps:
        if len(step.scores) == len(step.labels):
            for score, label in zip(step.scores, step.labels, strict=True):
                (one if label == common else other).add(score)
    if other.count < 20:
        return False
    error = math.sqrt(one.std**2 / one.count + other.std**2 / other.count)
    return abs(other.mean - one.mean) <= 3.0 * error


def _advice(step: Step, share: float) -> list[str]:
    if step.name.startswith("binary"):
        first = f"Weigh the rare class: `BCEWithLogitsLoss(pos_weight=torch.tensor({share / (1 - share):.3g}))`."
    else:
        first = "Weigh the classes: `CrossEntropyLoss(weight=len(y) / (classes * torch.bincount(y)))`."
    return [first, "Or draw the classes evenly, with a `WeightedRandomSampler`; and do not judge by accuracy."]
