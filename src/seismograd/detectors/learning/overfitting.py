"""`overfitting`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.running import Window
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class Overfitting:
    """The validation loss has turned up while the training loss goes on falling.

    Why it matters
    --------------
    From the turn on, the model learns its training data by heart: each further step makes it worse on everything
    else.

    How it is judged
    ----------------
    On means of three validations, from `validations` on: the best lies at least `since` validations back, the last is
    above it by `rise` of what had been gained since the first validation, by half of `rise` of what had been gained
    since the first training loss, by 5 % of its level, and by three standard errors of such a difference; and it has
    risen steadily since the best (the rank correlation of the last 32 is over 3 deviations above none, and more the
    more often it was looked at). The training loss between the validations has come down further since.

    What to try
    -----------
    Keep the checkpoint of the best validation and stop there; then more data or augmentation, weight decay, dropout,
    or a smaller model.

    An example
    ----------
    A large model, 200 samples, 500 epochs, and the last checkpoint is the one that is kept:

        if val_loss < best:  # keep the best instead, and stop a while after it
            best = val_loss
            torch.save(model.state_dict(), "best.pt")
    """

    id: ClassVar[str] = "overfitting"
    needs: ClassVar[tuple[str, ...]] = ()
    follows: ClassVar[tuple[str, ...]] = (
        "train-mode-evaluation",
        "eval-mode-training",
        "buffer-drift",
        "repeated-batch",
        "shuffled-labels",
    )

    validations: int = 8
    since: int = 5
    rise: float = 0.1

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_begin",
        "_best",
        "_best_step",
        "_best_train",
        "_count",
        "_detector",
        "_first",
        "_noise",
        "_since",
        "_steps",
        "_sum",
        "_trains",
        "_up",
        "_validations",
        "_values",
    )

    def __init__(self, detector: Overfitting) -> None:
        self._detector = detector
        self._sum, self._count = 0.0, 0
        self._values: deque[float] = deque(maxlen=3)
        self._trains: deque[float] = deque(maxlen=3)
        self._steps: deque[int] = deque(maxlen=3)
        self._noise = Window(32)
        self._up: deque[float] = deque(maxlen=32)
        self._validations, self._since, self._best_step = 0, 0, 0
        self._first = self._best_train = self._begin = math.nan
        self._best = math.inf

    def check(self, reading: Reading) -> Finding | None:
        scalars = reading.scalars
        loss = scalars.get("loss", math.nan)
        if -math.inf < loss < math.inf:
            if self._begin != self._begin:
                self._begin = loss
            self._sum += loss
            self._count += 1
        value = scalars.get("val_loss")
        if value is None or not math.isfinite(value):
            return None
        train = self._sum / self._count if self._count else math.nan
        self._sum, self._count = 0.0, 0
        return self._judge(reading, value, train)

    def _judge(self, reading: Reading, value: float, train: float) -> Finding | None:
        limits, values = self._detector, self._values
        self._validations += 1
        values.append(value)
        self._steps.append(reading.step)
        if math.isfinite(train):
            self._trains.append(train)
        if len(values) < 3 or not self._trains:
            return None
        self._noise.add(abs(values[1] - 0.5 * (values[0] + values[2])))
        now, trained = sum(values) / 3, sum(self._trains) / len(self._trains)
        if self._first != self._first:
            self._first = now
        self._since += 1
        self._up.append(value)
        if now < self._best:
            self._up.clear()
            self._up.extend(values)
            self._best, self._best_train, self._best_step, self._since = now, trained, self._steps[1], 0
            return None
        if self._validations < limits.validations or self._since < limits.since:
            return None
        gained = self._best_train - trained
        needed = max(
            limits.rise * (self._first - self._best),
            0.5 * limits.rise * (self._begin - self._best if self._begin == self._begin else 0.0),
            0.05 * abs(self._best),
        )
        if now - self._best <= needed or min(values) <= self._best or gained <= 0.02 * abs(self._best_train):
            return None
        # The middle of three differs from its neighbours by 1.22 deviations, two means of three by 0.82 of one. The
        # best is the lowest of many, so that noise alone lies well above it: only a steady rise is none.
        noise = self._noise.median / (0.6745 * 1.22)
        if now - self._best <= 2.5 * noise or _trend(list(self._up)) < 3.0 + 0.3 * math.log(self._validations / 8):
            return None
        message = (
            f"Validation has turned up: {number(now)} at step {reading.step}, its best was {number(self._best)} at step"
            f" {self._best_step}; the training loss went on from {number(self._best_train)} to {number(trained)}."
        )
        evidence = {
            "val_loss": float(now),
            "best": float(self._best),
            "best_step": self._best_step,
            "rise": float(now - self._best),
            "limit": float(needed),
            "train_then": float(self._best_train),
            "train_now": float(trained),
        }
        advice = [
            f"Use the checkpoint of about step {self._best_step}, and stop early: {self._since} validations have"
            " passed without a better one.",
            "Add data or augmentation, weight decay or dropout, or take a smaller model.",
        ]
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice)


def _trend(values: list[float]) -> float:
    """How steadily `values` rise, in standard deviations of what chance would give (Mann and Kendall)."""
    count = len(values)
    if count < 6:
        return 0.0
    pairs = sum(
        int(later > earlier) - int(later < earlier) for at, earlier in enumerate(values) for later in values[at + 1 :]
    )
    return pairs / math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
