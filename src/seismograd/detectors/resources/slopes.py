"""The slope of a noisy series, from a bounded number of points: robust against jumps."""

from __future__ import annotations

import itertools
from statistics import median

Point = tuple[int, float]

_MOST = 64


class Slope:
    """Points of a run, spread evenly over it: when there are too many, every second one goes."""

    __slots__ = ("_last", "_points", "_stride")

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._stride = 1
        self._last: Point = (-1, 0.0)

    def add(self, step: int, value: float) -> None:
        self._last = (step, value)
        if self._points and step < self._points[-1][0] + self._stride:
            return
        self._points.append((step, value))
        if len(self._points) > _MOST:
            del self._points[1::2]
            self._stride *= 2

    def after(self, step: int) -> list[Point]:
        """The points from this step on."""
        return [point for point in self._points if point[0] >= step]

    def since(self, step: int) -> float:
        """How much the value rose since this step."""
        if not self._points:
            return 0.0
        before = [value for at, value in self._points if at <= step]
        return self._last[1] - (before[-1] if before else self._points[0][1])

    def slope(self, first: int = 0) -> float | None:
        """The median of the slopes between all pairs of points (Theil and Sen)."""
        points = self.after(first)
        if len(points) < 8:
            return None
        return median((b[1] - a[1]) / (b[0] - a[0]) for at, a in enumerate(points) for b in points[at + 1 :])


def steady(points: list[Point], parts: int = 4) -> bool:
    """Whether the values rise by about as much in each part of the time: not in one jump, and not slower and slower."""
    first, last = points[0][0], points[-1][0]
    if last <= first:
        return False
    levels = []
    for part in range(parts):
        low, high = first + (last - first) * part / parts, first + (last - first) * (part + 1) / parts
        inside = [value for step, value in points if low <= step <= high]
        if not inside:
            return False
        levels.append(median(inside))
    rises = [after - before for before, after in itertools.pairwise(levels)]
    return min(rises) >= 0.5 * sum(rises) / len(rises) > 0
