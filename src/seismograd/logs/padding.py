"""Rows in which NaN stands for what was not logged: so tables are filled whose columns come at different steps.

A loss that is NaN must not be taken for that. It is, only where it comes at regular distances with NaN in most rows, or
where the row holds what never comes together with a training loss: a validation, a learning rate with rows of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from seismograd.logs.log import Log, listed
from seismograd.logs.names import has_own_rows, is_loss

_RETURNS = 3
"""So often a column has to come back from NaN: one that a run was ruined by does not."""
_REGULAR = 0.8
"""The share of a loss's distances that have to be the usual one."""
_HOLE = 3
"""So many times the usual distance is a hole that padding does not explain."""


def take_padding_out(log: Log) -> None:
    """Leaves NaN out of the entries where it only fills a row."""
    at: dict[str, list[tuple[int, bool]]] = {}
    bad = {name for entry in log.entries for name, value in entry.values.items() if math.isnan(value)}
    for number, entry in enumerate(log.entries):
        for name in bad & entry.values.keys():
            at.setdefault(name, []).append((number, not math.isnan(entry.values[name])))
    padding: dict[str, set[int]] = {}
    for name, rows in at.items():
        padding[name] = set(_between(rows, _REGULAR if is_loss(name) else 0.0))
    known = {name: {number for number, is_there in rows if is_there} for name, rows in at.items()}
    others = [name for name, rows in known.items() if rows and (padding[name] or has_own_rows(name))]
    for loss in filter(is_loss, known):
        for other in others:
            if other != loss and known[loss] and not known[loss] & known[other]:
                padding[loss] |= {number for number, _ in at[loss]} & known[other]
                padding[other] |= {number for number, _ in at[other]} & known[loss]
    filled = [name for name, rows in padding.items() if rows]
    if not filled:
        return
    for number in sorted(set().union(*padding.values())):
        entry = log.entries[number]
        left = {name: value for name, value in entry.values.items() if number not in padding.get(name, ())}
        log.entries[number] = replace(entry, values=left)
    log.notes.append(f"NaN stands for a value that was not logged in {listed(filled, 8)}")


def _between(rows: list[tuple[int, bool]], regular: float) -> Iterable[int]:
    """The rows with NaN between values that come now and then, and those around the first and the last one."""
    there = [place for place, (_, is_there) in enumerate(rows) if is_there]
    distances = Counter(later - earlier for earlier, later in pairwise(there))
    if not distances or 2 * len(there) > len(rows) + 1:
        return
    usual, times = distances.most_common(1)[0]
    returns = sum(number for distance, number in distances.items() if distance > 1)
    if usual < 2 or returns < _RETURNS or times < regular * (len(there) - 1):
        return
    for earlier, later in pairwise([max(-1, there[0] - usual), *there, len(rows)]):
        until = later if later - earlier <= _HOLE * usual else earlier + usual
        yield from (rows[place][0] for place in range(earlier + 1, until))
