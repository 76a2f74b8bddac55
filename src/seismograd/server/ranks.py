"""Ranks side by side, and curves of several of them: bounded, however many there are."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from seismograd.reports.across import across, chosen
from seismograd.reports.ranks import WORST, Side, gravest_first, number_of
from seismograd.server import telling
from seismograd.server.problems import RefusedError
from seismograd.store import Run

CURVES = 64
"""So many ranks have a curve each in one answer; of more there is the summary."""


def side_by_side(run: Run, sort: str, descending: bool) -> list[Side]:
    """All ranks of the run in that order."""
    sides: list[Side] = list(run.sides())
    order = gravest_first(sides) if sort == "gravest" else sorted(sides, key=lambda side: _key(side, sort))
    return order[::-1] if descending else order


def _key(side: Side, name: str) -> tuple[Any, ...]:
    if name == "status":
        return (WORST.index(side["status"]) if side["status"] in WORST else 0, side["rank"])
    if name == "findings":
        found = side["findings"]
        return (found["critical"], found["warning"], found["info"], side["rank"])
    if name == "host":
        return (str(side["host"] or ""), side["rank"])
    value = number_of(side[name])
    if value is None:
        return (0, 0.0, side["rank"])
    return (2, 0.0, side["rank"]) if math.isnan(value) else (1, value, side["rank"])  # NaN stands with the greatest


def wanted(run: Run, text: str) -> list[int]:
    """The ranks of the run that are meant."""
    if text == "all":
        return list(run.ranks)
    meant: list[range] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        meant.append(range(int(first), int(last or first) + 1))
    return [rank for rank in run.ranks if any(rank in part for part in meant)]


def curves_of(run: Run, names: Sequence[str], text: str, **span: Any) -> dict[str, Any]:
    """The curves of these ranks, each for itself."""
    found = wanted(run, text)
    if len(found) > CURVES:
        message = f"{len(found):,} ranks are too many for a curve each: at most {CURVES} are told at once"
        raise RefusedError(422, "too-many-ranks", message, "ask with summary=true, or for some of them: rank=0-63")
    return {
        "ranks": {
            str(rank): {key: telling.curve_of(curve) for key, curve in run.series(names, rank=rank, **span).items()}
            for rank in found
        }
    }


class Summaries:
    """Summaries that were made, kept until their run has gone on: they take a while where ranks are many."""

    def __init__(self, most: int = 64) -> None:
        self._most, self._lock = most, threading.Lock()
        self._made: OrderedDict[Any, dict[str, Any]] = OrderedDict()

    def of(self, run: Run, names: Sequence[str], text: str, most: int, **span: Any) -> dict[str, Any]:
        key = (run.id, run.batch, len(run.ranks), *names, text, most, *span.values())
        with self._lock:
            known = self._made.get(key)
        if known is None:
            known = summary_of(run, names, text, most, **span)
            with self._lock:
                self._made[key] = known
                if len(self._made) > self._most:
                    self._made.popitem(last=False)
        return known


def summary_of(run: Run, names: Sequence[str], text: str, most: int, **span: Any) -> dict[str, Any]:
    """Where the ranks are at each point: lowest, quartiles, highest, who; and who stands out."""
    meant = wanted(run, text)
    read = chosen(meant, run.sides() if len(meant) > most else (), most)
    spreads = across(run, names, read, **span)
    return {
        "summary": {name: {**spread.told(), "outliers": spread.outliers()} for name, spread in spreads.items()},
        "read": len(read),
        "of": len(meant),
    }
