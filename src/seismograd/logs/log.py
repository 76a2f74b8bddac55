"""A log as plain values: what every kind of file is read into."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class LogError(ValueError):
    """A log that cannot be read or judged; the message says why, and what to give."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What was logged in one go: values by their names in the log."""

    values: Mapping[str, float]
    step: float | None = None
    time: float | None = None
    """Seconds since 1970, where the log says it."""
    part: int = 0
    """The file it stands in, where there are several."""
    rank: int = 0
    series: int | None = None
    marks: frozenset[str] = frozenset()
    """How a reading of ours came about."""


@dataclass(slots=True)
class Log:
    """Everything that was logged, in the order in which it was."""

    source: str
    format: str
    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a reader of the verdict should know about how the log was read."""
    name: str = ""
    """What the run is called there."""
    ours: bool = False
    """Whether Seismograd wrote it: the names are then those of its readings."""
    steps_from: str = ""
    """The column that the steps are taken from."""
    nulls: dict[str, int] = field(default_factory=dict)
    """How often a column had no value although it was there."""

    def counts(self) -> dict[str, int]:
        """How many values each name has, in the order in which the names came."""
        found: dict[str, int] = {}
        for entry in self.entries:
            for name in entry.values:
                found[name] = found.get(name, 0) + 1
        return found

    def series(self, name: str) -> Iterator[tuple[float | None, float]]:
        """Step and value of each entry that has this name."""
        for entry in self.entries:
            if name in entry.values:
                yield entry.step, entry.values[name]


_TENSOR = re.compile(r"tensor\(\s*([^,()\s]+)\s*(?:,[^()]*)?\)")
_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")


def number_of(value: Any) -> float | None:
    """The number that was logged; `None` where there is none. NaN is a number, an empty field is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if not isinstance(value, str):
        return None
    text = value.strip()
    if (found := _TENSOR.fullmatch(text)) is not None:
        text = found[1]
    if _COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def listed(names: Mapping[str, int] | list[str], most: int = 20) -> str:
    """Names for an error message, with how many values each has."""
    told = [f"{name!r} ({names[name]:,})" for name in names] if isinstance(names, Mapping) else list(map(repr, names))
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(told[:most]) + more
