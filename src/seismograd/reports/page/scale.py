"""Where values come to stand between the foot and the head of a picture, and what is written beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seismograd.amounts import duration, number, size

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_DECADES = 2.0
"""Values that span more are set by their logarithm."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From `low` to `high`, by the logarithm or not."""

    low: float
    high: float
    log: bool = False
    zero: bool = False
    """Zeros stand at the foot of a logarithmic scale."""
    unit: str = ""
    """`bytes`, `seconds`, or nothing."""
    blank: bool = False
    """No value is known, so none is written beside it."""

    @classmethod
    def of(cls, values: ArrayLike, unit: str = "", decades: float | None = _DECADES) -> Scale:
        """The scale on which all finite values have their place."""
        known = np.asarray(values, dtype=np.float64)
        known = known[np.isfinite(known)]
        if not known.size:
            return cls(0.0, 1.0, unit=unit, blank=True)
        low, high = float(known.min()), float(known.max())
        above = known[known > 0]
        if decades is not None and low >= 0 and above.size and math.log10(high) - math.log10(above.min()) > decades:
            foot = math.log10(above.min())
            head = math.log10(high)
            room = 0.04 * (head - foot)
            down = 3 * room if low == 0 else room
            return cls(10 ** max(foot - down, -307), 10 ** min(head + room, 308), True, low == 0, unit)
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # means of one value differ by their rounding
            low = high = float(known[-1])
            low, high = (0.0, 2 * high) if high > 0 else (2 * low, 0.0) if low < 0 else (-1.0, 1.0)
            return cls(low, high, unit=unit)
        room = 0.05 * (high / 2 - low / 2) * 2
        foot_ = 0.0 if 0 <= low < 0.25 * high else max(low - room, -1.7e308)
        return cls(foot_, min(high + room, 1.7e308), unit=unit)

    def at(self, values: ArrayLike) -> NDArray[np.float64]:
        """Their places, 0 at the foot and 1 at the head; NaN where there is none."""
        given = np.asarray(values, dtype=np.float64)
        with np.errstate(all="ignore"):
            if self.log:
                places = (np.log10(given) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
                places = np.where(given <= 0, 0.0, places)
            else:
                places = (given / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return np.where(np.isfinite(given), np.clip(places, 0.0, 1.0), np.nan)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Round values within it: their places, and how they are written."""
        if self.blank:
            return []
        if self.log:
            values = _powers(self.low, self.high, most)
            ticks = [(float(self.at(value)), self.written(value)) for value in values]
            return [(0.0, "0"), *(tick for tick in ticks if tick[0] > 0.08)] if self.zero else ticks
        step, values = _steps(self.low, self.high, most, _base(self.unit, self.high))
        return [(float(self.at(value)), self._tick(value, step)) for value in values]

    def written(self, value: float) -> str:
        """A value as it is read out."""
        if self.unit == "bytes" and math.isfinite(value):
            return size(value)
        if self.unit == "seconds" and math.isfinite(value):
            return duration(value)
        return number(value)

    def _tick(self, value: float, step: float) -> str:
        if self.unit:
            return self.written(value)
        if value and (abs(value) >= 1e6 or step < 1e-4):
            return number(value)
        return f"{value:,.{max(0, math.ceil(-math.log10(step) - 1e-9) + (not _is_round(step)))}f}"


def steps_scale(first: float, last: float) -> Scale:
    """The scale of steps, left to right."""
    return Scale(first, last) if last > first else Scale(first - 0.5, first + 0.5)


def step_ticks(scale: Scale, most: int = 6) -> list[tuple[float, str]]:
    """Round steps within it: `500`, `20k`, `1.5M`."""
    _, values = _steps(scale.low, scale.high, most, 1.0)
    whole = [value for value in values if value == int(value)]
    return [(float(scale.at(value)), short(value)) for value in whole]


def short(step: float) -> str:
    """A step in few characters."""
    if abs(step) < 10_000:
        return f"{step:,.0f}"
    rounded = float(f"{step:.4g}")
    factor, unit = next(each for each in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(rounded) >= each[0])
    return f"{rounded / factor:.4g}{unit}"


def _base(unit: str, high: float) -> float:
    """What round values are multiples of: a MB, where they are that large."""
    if unit != "bytes" or high < 1024:
        return 1.0
    return float(1024 ** min(4, int(math.log(high, 1024))))


def _steps(low: float, high: float, most: int, base: float) -> tuple[float, list[float]]:
    low, high = low / base, high / base
    rough = (high / most - low / most) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in _ROUND if power * each >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    count = min(int(math.floor(high / step + 1e-9) - first) + 1, 2 * most)
    return step * base, [(first + at) * step * base for at in range(count)]


def _is_round(step: float) -> bool:
    return step / 10.0 ** math.floor(math.log10(step) + 1e-9) != 2.5


def _powers(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    gap = max(1, -(-(last - first + 1) // most))
    return [10.0**power for power in range(first, last + 1) if power % gap == 0 and -307 < power < 308]
