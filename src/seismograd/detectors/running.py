"""Running statistics of bounded size, O(1) for each value: what detectors remember of a run."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque


class Window:
    """The last `size` values, also in order, so that median and quartiles are a look-up."""

    __slots__ = ("_ordered", "_queue", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: deque[float] = deque()
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, value: float) -> None:
        if len(self._queue) == self.size:
            oldest = self._queue.popleft()
            del self._ordered[bisect_left(self._ordered, oldest)]
        self._queue.append(value)
        insort(self._ordered, value)

    def clear(self) -> None:
        self._queue.clear()
        self._ordered.clear()

    @property
    def median(self) -> float:
        return self._ordered[len(self._ordered) // 2]

    @property
    def highest(self) -> float:
        return self._ordered[-1]

    @property
    def lowest(self) -> float:
        return self._ordered[0]

    @property
    def spread(self) -> float:
        """The standard deviation as the quartiles tell it: outliers do not move it."""
        count = len(self._ordered)
        return (self._ordered[(3 * count) // 4] - self._ordered[count // 4]) / 1.349


class First:
    """The first `size` values, and their median, which then stays."""

    __slots__ = ("_values", "median", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: list[float] = []
        self.median = math.nan

    def __len__(self) -> int:
        return len(self._values)

    @property
    def full(self) -> bool:
        return len(self._values) >= self.size

    @property
    def spread(self) -> float:
        count = len(self._values)
        return (self._values[(3 * count) // 4] - self._values[count // 4]) / 1.349 if count > 3 else 0.0

    def add(self, value: float) -> None:
        if len(self._values) < self.size:
            insort(self._values, value)
            self.median = self._values[len(self._values) // 2]


class Welford:
    """Mean and variance of all values so far."""

    __slots__ = ("_squares", "count", "mean")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.count, self.mean, self._squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self._squares += delta * (value - self.mean)

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0


class Ema:
    """An exponential mean, unbiased from its first value on."""

    __slots__ = ("_keep", "_sum", "_weight")

    def __init__(self, span: float) -> None:
        self._keep, self._sum, self._weight = 1.0 - 2.0 / (span + 1.0), 0.0, 0.0

    def add(self, value: float) -> None:
        keep = self._keep
        self._sum = keep * self._sum + (1.0 - keep) * value
        self._weight = keep * self._weight + (1.0 - keep)

    @property
    def mean(self) -> float:
        return self._sum / self._weight if self._weight else math.nan


def median(values: list[float]) -> float:
    """The median of a short list."""
    return sorted(values)[len(values) // 2]
