"""Spans of steps and how densely they are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seismograd.store.codec import Ints


@dataclass(frozen=True, slots=True)
class Span:
    """The steps `start` to `stop`: one value stands for `width` of them.

    `whole`: everything that was read is there. One that is not whole and has a width of 1 lacks only tables.
    """

    start: int
    stop: int
    width: int = 1
    whole: bool = True

    def to_dict(self) -> dict[str, Any]:
        return {"start": self.start, "stop": self.stop, "width": self.width, "whole": self.whole}

    def __str__(self) -> str:
        steps = f"step {self.start:,}" if self.start == self.stop else f"steps {self.start:,} to {self.stop:,}"
        if self.whole:
            return steps
        return f"{steps} without tables" if self.width == 1 else f"{steps} at one reading in {self.width:,} steps"


def shared(mine: Iterable[tuple[int, int]], theirs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What two lists of spans have in common, in order."""
    both = [(max(a, c), min(b, d)) for a, b in mine for c, d in theirs]
    return sorted((start, stop) for start, stop in both if start <= stop)


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order, those that touch each other as one."""
    result: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if result and start <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result


def missing(from_: int, to: int, there: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans of `from_` to `to` that are not in `there`."""
    gaps, at = [], from_
    for start, stop in sorted(there):
        if start > at:
            gaps.append((at, min(start - 1, to)))
        at = max(at, stop + 1)
    if at <= to:
        gaps.append((at, to))
    return [(start, stop) for start, stop in gaps if start <= stop]


def spans_of(first: Ints, last: Ints) -> tuple[Span, ...]:
    """The points, each of which stands for the steps `first` to `last`, as spans of the same density."""
    if not len(first):
        return ()
    order = np.argsort(first, kind="stable")
    first, last = first[order], last[order]
    width = last - first + 1
    rung = np.ceil(np.log2(np.maximum(width, 1))).astype(np.int64)
    starts = np.flatnonzero(np.diff(rung, prepend=-1))
    ends = np.append(starts[1:], len(first)) - 1
    return tuple(_span(first[a : b + 1], last[a : b + 1]) for a, b in zip(starts, ends, strict=True))


def _span(first: Ints, last: Ints) -> Span:
    start, stop = int(first[0]), int(last.max())
    width = max(int(np.median(last - first + 1)), round((stop - start + 1) / len(np.unique(last))))
    return Span(start, stop, width, width == 1)
