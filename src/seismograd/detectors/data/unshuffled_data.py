"""`unshuffled-data`."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from seismograd.detectors.data.tasks import Numbers, Step, step_of
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class UnshuffledData:
    """Batches come sorted: one class after the other, or targets in rising order.

    Why it matters
    --------------
    A batch of one class teaches the model to say that class always, and the next ones to forget it again. Batch
    statistics are those of one class, the loss looks excellent until the class changes, and what is left at the end is
    the last class.

    How it is judged
    ----------------
    By the labels of the samples, in the order in which they come. In a shuffled run neighbours differ as often as
    any two samples do. Here they differ less than `within` times as often inside batches, and each batch goes on where
    the one before ended, or with a higher class, more often than chance would have it; over `batches` batches and
    `labels` labels, of which no class has more than `most`. Where only single steps are read, nine of ten batches
    have to be of one class, of three or more. A sampler that fills each batch with a few classes of its own choice is
    fine: its next batch has others. So is an unshuffled loader over data that are mixed already, and batches that hold
    all classes, one after the other.

    For numbers: the means of the batches rise (or fall) all the way through at least two passes over the data, the
    spread within a batch being less than `spread` of the whole. That is only told of, unless the loss leaps to three
    times its size at five such beginnings on end.

    What to try
    -----------
    `DataLoader(..., shuffle=True)`. For an iterable dataset a shuffle buffer, or files that are mixed beforehand.
    Without a loader: a new `torch.randperm(len(x))` each epoch.

    An example
    ----------
    Folders that are read one after the other:

        loader = DataLoader(ImageFolder("train"), batch_size=32)                    # all cats, then all dogs
        loader = DataLoader(ImageFolder("train"), batch_size=32, shuffle=True)      # instead
    """

    id: ClassVar[str] = "unshuffled-data"
    needs: ClassVar[tuple[str, ...]] = ("facts/data",)
    follows: ClassVar[tuple[str, ...]] = ()

    within: float = 0.25
    batches: int = 10
    labels: int = 80
    most: float = 0.92
    spread: float = 0.3

    def start(self) -> _Checker:
        return _Checker(self)


_WINDOW = 256


@dataclass(frozen=True, slots=True)
class _Batch:
    counts: Counter[int]
    inside: int
    """How many neighbours differ."""
    pairs: int
    mixture: float
    """How often two of its labels, drawn at random, differ."""
    between: int
    """Whether the first label differs from the last one of the batch before."""
    rises: int
    """Whether it is the same or higher."""
    borders: int
    """0 where the batch before was not seen."""

    @classmethod
    def of(cls, labels: Sequence[int], before: int | None) -> _Batch:
        differ = sum(a != b for a, b in pairwise(labels))
        counts = Counter(labels)
        return cls(
            counts,
            differ,
            len(labels) - 1,
            1.0 - sum(count * count for count in counts.values()) / len(labels) ** 2,
            int(before is not None and before != labels[0]),
            int(before is not None and before <= labels[0]),
            int(before is not None),
        )


class _Order:
    """The last batches, and the sums over them."""

    __slots__ = ("batches", "between", "borders", "counts", "inside", "mixtures", "pairs", "pure", "rises")

    def __init__(self) -> None:
        self.batches: deque[_Batch] = deque()
        self.counts: Counter[int] = Counter()
        self.inside = self.pairs = self.between = self.borders = self.pure = self.rises = 0
        self.mixtures = 0.0

    def add(self, batch: _Batch) -> None:
        self.batches.append(batch)
        self._count(batch, 1)
        if len(self.batches) > _WINDOW:
            self._count(self.batches.popleft(), -1)

    def goes_on(self, mixture: float) -> bool:
        """Whether batches go on where the one before ended, or rise, more often than chance lets them."""
        between, rises = self.between / self.borders, self.rises / self.borders
        sure = 3.5 / math.sqrt(self.borders)
        stays = between < 0.6 * mixture and mixture - between > sure * math.sqrt(mixture * (1.0 - mixture))
        return stays or rises - 0.55 > 0.5 * sure

    def _count(self, batch: _Batch, sign: int) -> None:
        for label, count in batch.counts.items():
            self.counts[label] += sign * count
        self.inside += sign * batch.inside
        self.pairs += sign * batch.pairs
        self.mixtures += sign * batch.mixture
        self.between += sign * batch.between
        self.rises += sign * batch.rises
        self.borders += sign * batch.borders
        self.pure += sign * (len(batch.counts) == 1)


class _Checker:
    __slots__ = ("_detector", "_last", "_last_step", "_numbers", "_order", "_takes_turns", "_walk")

    def __init__(self, detector: UnshuffledData) -> None:
        self._detector = detector
        self._order = _Order()
        self._last: int | None = None
        self._last_step = -2
        self._takes_turns = False
        self._numbers = Numbers()
        self._walk = _Walk()

    def check(self, reading: Reading) -> Finding | None:
        step = step_of(reading, "classes")
        if step is not None:
            return self._of_labels(reading, step)
        step = step_of(reading, "numbers")
        if step is not None and len(step.moments) >= 2 and step.rows == step.batch and step.rows > 1:
            return self._of_numbers(reading, step)
        return None

    def _of_labels(self, reading: Reading, step: Step) -> Finding | None:
        labels, limits = [label for label in step.labels if label >= 0], self._detector
        if len(labels) < 4 or step.rows != step.batch or not step.alone or step.places:
            return None
        if reading.step == self._last_step:
            self._takes_turns = True  # another optimizer's batch of the same step, as in a GAN: real and fake by design
        if self._takes_turns:
            return None
        before = self._last if reading.step == self._last_step + 1 else None
        self._last, self._last_step = labels[-1], reading.step
        self._order.add(_Batch.of(labels, before))
        if len(self._order.batches) < limits.batches:
            return None
        return self._judge(reading)

    def _judge(self, reading: Reading) -> Finding | None:
        limits, order = self._detector, self._order
        seen, total = order.counts, sum(order.counts.values())
        if total < limits.labels or order.inside > limits.within * order.pairs:
            return None
        mixture = 1.0 - sum((count / total) ** 2 for count in seen.values())
        inside = order.inside / order.pairs
        if inside > limits.within * mixture or max(seen.values()) > limits.most * total:
            return None
        if order.mixtures > 0.7 * mixture * len(order.batches):
            return None  # each batch holds all classes, one after the other: positives, then negatives
        if order.borders >= limits.batches - 2:
            sorted_ = order.goes_on(mixture)
        else:
            sorted_ = len(+seen) >= 3 and order.pure >= 0.9 * len(order.batches)
        if not sorted_:
            return None
        count, pure = len(order.batches), order.pure
        kind = f"{pure} of the last {count} batches hold one class only" if 2 * pure > count else "labels come in order"
        message = (
            f"Batches are not shuffled: {kind}, one class comes after the other. Neighbours are of different classes in"
            f" {number(100 * inside)} % of the cases; {number(100 * mixture)} % would be usual with these"
            f" {len(+seen)} classes."
        )
        evidence = {
            "neighbours_differ": inside,
            "shuffled": mixture,
            "limit": limits.within,
            "pure_batches": pure,
            "batches": count,
            "classes": len(+seen),
        }
        return found(limits, reading, Severity.WARNING, message, evidence, advice=_ADVICE)

    def _of_numbers(self, reading: Reading, step: Step) -> Finding | None:
        mean, std = step.moments[0], step.moments[1]
        if not (math.isfinite(mean) and math.isfinite(std) and math.isfinite(step.value)):
            return None
        self._numbers.add(mean, std)
        walk = self._walk
        walk.add(mean, step.value, new=reading.step != self._last_step + 1)
        self._last_step = reading.step
        if walk.passes < 2 or std > self._detector.spread * self._numbers.std:
            return None
        worse = walk.jumps >= 5
        message = (
            f"Batches are not shuffled: their targets {'rise' if walk.direction > 0 else 'fall'} steadily from batch to"
            f" batch, {walk.passes} times over. Those of one batch spread over {number(std)}, all of them over"
            f" {number(self._numbers.std)}."
        )
        if worse:
            message += " The loss jumps up each time the order begins again."
        evidence = {"passes": walk.passes, "std": std, "all_std": self._numbers.std, "limit": self._detector.spread}
        severity = Severity.WARNING if worse else Severity.INFO
        return found(self._detector, reading, severity, message, evidence, advice=_ADVICE)


_ADVICE = (
    "Shuffle: `DataLoader(dataset, batch_size=..., shuffle=True)`.",
    "Without a loader: `order = torch.randperm(len(x))` in each epoch, and `at = order[i:i + n]; x[at], y[at]`.",
)


class _Walk:
    """Follows the means of batches: how often they went all one way and began again."""

    __slots__ = ("_count", "_first", "_last", "_loss", "direction", "jumps", "passes")

    def __init__(self) -> None:
        self.passes = self.jumps = self.direction = 0
        self._first = self._last = self._loss = math.nan
        self._count = 0

    def add(self, mean: float, loss: float, *, new: bool) -> None:
        if new or self._count == 0:
            self._begin(mean, loss)
            self.passes = self.jumps = 0
            return
        way = 1 if mean > self._last else -1
        if self._count == 1 and self.passes == 0:
            self.direction = way
        if way == self.direction:
            self._count += 1
            self._last, self._loss = mean, loss
            return
        back = abs(mean - self._first) < 0.2 * abs(self._last - self._first)
        if back and self._count >= 8:
            self.passes += 1
            self.jumps = self.jumps + 1 if loss > 3.0 * self._loss else 0
        else:
            self.passes = self.jumps = 0
        self._begin(mean, loss)

    def _begin(self, mean: float, loss: float) -> None:
        self._first = self._last = mean
        self._loss, self._count = loss, 1
