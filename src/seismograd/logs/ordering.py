"""From entries to readings: steps that begin anew, are logged twice, or are missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from seismograd.logs.log import Entry, Log, LogError
from seismograd.logs.names import Columns
from seismograd.records import Reading

_MOST_STEP = 1 << 53


@dataclass(slots=True)
class Course:
    """The readings of a log, in the order of their steps, and when each was logged."""

    readings: list[tuple[Reading, float | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    begins_late: bool = False
    """Whether the log begins long after the run did: what was before is not known."""
    gap: int = 1
    """Steps from one loss to the next, as a rule."""


@dataclass(frozen=True, slots=True)
class _Placed:
    step: int
    entry: Entry


def course_of(log: Log, columns: Columns) -> Course:
    """The readings; what had to be decided about the steps is noted."""
    course = Course()
    for rank in sorted({entry.rank for entry in log.entries}):
        own = [entry for entry in log.entries if entry.rank == rank]
        placed = _placed(own, columns, course, log)
        if not log.ours:
            placed = _attempts(placed, columns, course)
        course.readings += _readings(placed, columns)
    losses = [reading.step for reading, _ in course.readings if any(n.split("/")[0] == "loss" for n in reading.scalars)]
    if not losses:
        raise LogError(f"{log.source!r} has not a single value of the loss {columns.theirs('loss')!r}")
    gaps = [later - earlier for earlier, later in pairwise(losses) if later > earlier]
    course.gap = int(median(gaps)) if gaps else 1
    course.begins_late = losses[0] > 5 * course.gap + 10 and log.steps_from != ""
    return course


def _placed(entries: Sequence[Entry], columns: Columns, course: Course, log: Log) -> list[_Placed]:
    """Each entry with a whole number as its step: its own, or that of its row."""
    known = [entry.step for entry in entries if entry.step is not None]
    whole = all(step == int(step) and 0 <= step < _MOST_STEP for step in known)
    loss = columns.theirs("loss")
    at_all = [entry.step for entry in entries if loss in entry.values]
    if known and not whole:
        course.notes.append(
            f"the steps ({log.steps_from!r}) are no whole numbers from 0 on: losses are counted instead"
        )
    elif known and not log.ours and len(at_all) > 1 and len(set(at_all)) == 1 and at_all[0] is not None:
        known = []
        course.notes.append(f"all values have the same step ({at_all[0]:,.0f}): losses are counted instead")
    elif not known:
        course.notes.append("no column of steps was found: losses are counted instead")
    placed: list[_Placed] = []
    at = -1
    for entry in entries:
        if known and whole:
            at = max(at, 0) if entry.step is None else int(entry.step)
        elif loss is None or loss in entry.values or at < 0:
            at += 1
        placed.append(_Placed(at, entry))
    return placed


def _attempts(placed: Sequence[_Placed], columns: Columns, course: Course) -> list[_Placed]:
    """Steps that go back: counted through if they begin anew with each epoch, else the later attempt counts."""
    loss = columns.theirs("loss")
    curve = [(at, each) for at, each in enumerate(placed) if loss in each.entry.values]
    back = [(at, before, each) for (_, before), (at, each) in pairwise(curve) if each.step < before.step]
    if not back or len(back) > max(200, len(curve) // 4):  # out of order all along: as several workers write
        return list(placed)
    first = curve[0][1]
    starts = [0]
    stretches: list[list[_Placed]] = []
    for at, _, _ in back:
        stretches.append(list(placed[starts[-1] : at]))
        starts.append(at)
    stretches.append(list(placed[starts[-1] :]))
    kept, offset = stretches[0], 0
    for (_, before, each), stretch in zip(back, stretches[1:], strict=True):
        if each.step > first.step:
            kept = _resumed(kept, stretch, offset, course)
        elif each.entry.part == before.entry.part and _goes_on(kept, each, before, str(loss), len(back)):
            offset = max(old.step for old in kept) + 1 - first.step
            kept = kept + [_Placed(new.step + offset, new.entry) for new in stretch]
        else:
            course.notes.append(
                f"the steps begin anew after step {before.step:,}, with another training: only the last one is judged"
            )
            kept, offset = stretch, 0
    if offset:
        course.notes.append("the steps begin anew, with each epoch or after a resume: they are counted through")
    return kept


def _resumed(kept: list[_Placed], stretch: list[_Placed], offset: int, course: Course) -> list[_Placed]:
    """A run that went on from a checkpoint: what was logged behind it before is no part of its course."""
    again = stretch[0].step + offset
    last = max(old.step for old in kept)
    course.notes.append(
        f"the run went on from step {again:,} after step {last:,}: what was logged of those steps before is left out"
    )
    return [old for old in kept if old.step < again] + [_Placed(new.step + offset, new.entry) for new in stretch]


def _goes_on(kept: Sequence[_Placed], each: _Placed, before: _Placed, loss: str, times: int) -> bool:
    """Whether a return to the first step is a new epoch, not another training."""
    for name in ("epoch", "train/epoch"):
        now, then = each.entry.values.get(name), before.entry.values.get(name)
        if now is not None and then is not None:
            return now > then
    if times > 1:
        return True
    values = [old.entry.values[loss] for old in kept if loss in old.entry.values]
    begin, end, now = values[0], median(values[-5:]), each.entry.values[loss]
    return not abs(now - begin) < abs(now - end)


def _readings(placed: Sequence[_Placed], columns: Columns) -> list[tuple[Reading, float | None]]:
    """One reading for each step; a second where a name was logged twice at one."""
    found: list[tuple[int, dict[str, float], float | None, Entry]] = []
    open_: dict[tuple[int, int | None], int] = {}
    for each in sorted(placed, key=lambda one: one.step):
        key = (each.step, each.entry.series)
        named = {columns.names[name]: value for name, value in each.entry.values.items() if name in columns.names}
        at = open_.get(key)
        if at is not None and all(_same(found[at][1][name], named[name]) for name in found[at][1].keys() & named):
            found[at][1].update(named)
        else:
            open_[key] = len(found)
            found.append((each.step, named, each.entry.time, each.entry))
    return [
        (Reading(step, scalars, rank=entry.rank, series=entry.series, marks=entry.marks), time)
        for step, scalars, time, entry in found
    ]


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
