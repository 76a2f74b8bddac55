"""A series in a few characters: `Curve` keeps it in bounded memory, `sparkline` draws it."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-'"
BROKEN = "!"
"""Stands where a value was not finite."""


class Curve:
    """The means of a series over equal spans of steps: at most `size` of them. When they are full, two become one."""

    def __init__(self, size: int = 128) -> None:
        self.size = size
        self._first: int | None = None
        self._span = 1
        self._means: list[float] = []
        self._counts: list[int] = []

    def add(self, step: int, value: float) -> None:
        if self._first is None:
            self._first = step
        at = max(0, step - self._first) // self._span
        while at >= self.size:
            self._halve()
            at //= 2
        while len(self._means) <= at:
            self._means.append(0.0)
            self._counts.append(0)
        self._counts[at] += 1
        self._means[at] += (value - self._means[at]) / self._counts[at]  # one NaN in a mean makes it NaN: it is seen

    def points(self, width: int) -> list[float]:
        """The curve in at most `width` values; where nothing was read it stays where it was."""
        number = min(width, len(self._means))
        points: list[float] = []
        for column in range(number):
            start, stop = (at * len(self._means) // number for at in (column, column + 1))
            mean, count = self._mean(start, stop)
            points.append(mean if count else points[-1])
        return points

    def measured(self, width: int) -> tuple[list[int], list[float]]:
        """The steps and values of a curve of at most `width` points; where nothing was read there is none."""
        number = min(width, len(self._means))
        steps, values = [], []
        for column in range(number):
            start, stop = (at * len(self._means) // number for at in (column, column + 1))
            mean, count = self._mean(start, stop)
            if count:
                steps.append((self._first or 0) + start * self._span)
                values.append(mean)
        return steps, values

    def _halve(self) -> None:
        pairs = [self._mean(at, at + 2) for at in range(0, len(self._means), 2)]
        self._means, self._counts = [mean for mean, _ in pairs], [count for _, count in pairs]
        self._span *= 2

    def _mean(self, start: int, stop: int) -> tuple[float, int]:
        mean, count = 0.0, 0
        for at in range(start, min(stop, len(self._means))):
            if more := self._counts[at]:
                count += more
                mean += (self._means[at] - mean) * (more / count)
        return mean, count


def sparkline(values: Sequence[float], levels: str = BLOCKS) -> str:
    """One character for each value, from the lowest level to the highest. Values above zero are set by their logarithm:

    a loss that falls from 10 to 0.1 is seen to fall to its end.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return BROKEN * len(values)
    scale = math.log if min(finite) > 0 else float
    low, high = scale(min(finite)), scale(max(finite))
    reach = high - low
    flat = reach <= 1e-6 * max(abs(low), abs(high), 1e-300) or not math.isfinite(reach)
    drawn = []
    for value in values:
        if not math.isfinite(value):
            drawn.append(BROKEN)
        elif flat:
            drawn.append(levels[(len(levels) - 1) // 2])
        else:
            drawn.append(levels[min(int((scale(value) - low) / reach * len(levels)), len(levels) - 1)])
    return "".join(drawn)
