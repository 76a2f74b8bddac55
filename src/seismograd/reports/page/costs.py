"""Where the time of a step goes, and what memory the run takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seismograd.amounts import duration
from seismograd.reports.page.curves import HIGH, WIDE, Mark, chart, framed, line_of, line_through, svg, when
from seismograd.reports.page.markup import Html, data, joined, prose, tag
from seismograd.reports.page.material import Material
from seismograd.reports.page.scale import Scale, steps_scale
from seismograd.reports.words import SHORT, seconds_of

if TYPE_CHECKING:
    from seismograd.store import Series

PHASES = (
    "data",
    "forward",
    "backward",
    "optimizer",
    "evaluation",
    "checkpoint",
    "logging",
    "collective",
    "rest",
    "watch",
)
_WORDS = {"data": "waiting for data", "optimizer": "optimizer step", "rest": "everything else", "watch": "Seismograd"}
_MEMORY = {
    "memory/rss": "whole process",
    "memory/own": "of its own",
    "memory/allocated": "device, allocated",
    "memory/reserved": "device, reserved",
    "memory/peak": "device, peak",
}
_BINS = 120

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Areas:
    """The phases of a step over spans of steps: the last step of each, how many in it were read, and their means."""

    steps: Floats
    readings: Floats
    seconds: Mapping[str, Floats]


def time_figure(material: Material) -> Html | None:
    """The phases of a step: what they take on average, and over the steps if those are known."""
    performance = material.report.get("performance") or {}
    means = {phase: _number(value) for phase, value in (performance.get("seconds") or {}).items()}
    areas = _areas(material)
    if areas is not None:
        means = {phase: float(np.average(values, weights=areas.readings)) for phase, values in areas.seconds.items()}
    means = {phase: means[phase] for phase in PHASES if means.get(phase, 0.0) > 0}
    whole = sum(means.values())
    if not whole:
        return None
    rows = [_row(phase, seconds, whole) for phase, seconds in means.items()]
    own = {phase: seconds for phase, seconds in means.items() if phase != "watch"} or means
    dearest = max(own, key=own.__getitem__)
    every = (material.run.get("overhead") or {}).get("steps_read") is None
    most = f"{_word(dearest)} the most of it"
    if means.get("watch", 0.0) > own[dearest]:
        most = f"{duration(means['watch'])} of it for Seismograd, and {_word(dearest)} the most of the rest"
    told = [f"A step{'' if every else ' that is read'} takes {duration(whole)} on average, {most}."]
    if longest := _longest(material):
        told.append(longest)
    if (stalled := _number(performance.get("stalled"))) > 0.01 * whole:
        told.append(f"In {duration(stalled)} of it the process was kept from running.")
    if "watch" in means and seconds_of(material.run) < SHORT:
        told.append("In the first seconds Seismograd looks at more than later, when it keeps to its budget.")
    parts = [tag("div", tag("p", "Time of a step by phase", cls="title"), cls="chart-head")]
    if areas is not None:
        parts.append(_stack(areas))
    parts.append(tag("table", tag("tbody", joined(rows)), cls="phases"))
    parts.append(tag("figcaption", prose(" ".join(told))))
    if areas is not None:
        parts.append(_numbers(areas))
    return tag("figure", *parts, cls="chart time")


def _row(phase: str, seconds: float, whole: float) -> Html:
    colour = f"p{PHASES.index(phase) + 1}"
    fill = tag("i", style=f"width:{seconds / whole:.1%}", cls=colour)
    return tag(
        "tr",
        tag("th", _word(phase), scope="row", cls=colour),
        tag("td", tag("span", fill, cls="bar", aria_hidden="true")),
        tag("td", duration(seconds), cls="value"),
        tag("td", f"{seconds / whole:.0%}", cls="value"),
    )


def _longest(material: Material) -> str | None:
    steps = material.series(["time/step"]).get("time/step")
    if steps is None or not np.isfinite(steps.high).any():
        return None
    at = int(np.nanargmax(steps.high))
    took = duration(float(steps.high[at]))
    return f"The longest step took {took}, {when(float(steps.first[at]), float(steps.steps[at]))}."


def memory_figure(material: Material, marks: Sequence[Mark]) -> Html | None:
    """The memory of the process, and of the device if there is one."""
    series = material.series(_MEMORY)
    lines = [line_of(_MEMORY[name], each) for name, each in series.items()]
    if not lines:
        kept = [each for each in material.report.get("memory") or () if isinstance(each, Mapping)]
        for name, label in _MEMORY.items():
            points = [(each["step"], _number(each[name])) for each in kept if name in each and "step" in each]
            if points:
                lines.append(line_through(label, *zip(*points, strict=True)))
    if not lines:
        return None
    return chart("Memory", lines, unit="bytes", marks=marks, decades=None)


def _areas(material: Material) -> Areas | None:
    """The phases over spans of steps, as means of the steps that were read; a phase that a step did not have took none
    of its time."""
    series = material.series(["time/step", *(f"time/{phase}" for phase in PHASES)])
    steps = series.pop("time/step", None)
    if steps is None or len(steps.steps) < 2 or not series:
        return None
    count = min(_BINS, len(steps.steps))
    edges = np.linspace(float(steps.first[0]), float(steps.steps[-1]) + 1, count + 1)
    bins = np.unique(np.clip(np.searchsorted(edges, steps.steps, side="right") - 1, 0, count - 1))
    last = np.array([steps.steps[np.searchsorted(steps.steps, edges[at + 1], side="left") - 1] for at in bins])

    def summed(each: Series, values: Floats) -> Floats:
        at = np.clip(np.searchsorted(last, each.steps), 0, len(last) - 1)
        return np.asarray(np.bincount(at, values, len(last)), dtype=np.float64)

    readings = summed(steps, (steps.count - steps.bad).astype(np.float64))
    seconds = {
        name.removeprefix("time/"): summed(each, np.nan_to_num(each.mean) * (each.count - each.bad))
        / np.maximum(readings, 1)
        for name, each in series.items()
    }
    seconds = {phase: seconds[phase] for phase in PHASES if phase in seconds and seconds[phase].any()}
    return Areas(last.astype(np.float64), readings, seconds) if seconds and len(last) > 1 and readings.any() else None


def _stack(areas: Areas) -> Html:
    steps = areas.steps
    across, up = steps_scale(float(steps[0]), float(steps[-1])), _height(areas)
    x = across.at(steps) * WIDE
    parts = [tag("path", d="".join(f"M0 {(1 - place) * HIGH:.1f}H{WIDE}" for place, _ in up.ticks(4)), cls="grid")]
    below = np.zeros(len(steps))
    for phase, values in areas.seconds.items():
        above = below + values
        over = [f"{a:.1f} {(1 - b) * HIGH:.1f}" for a, b in zip(x, up.at(above), strict=True)]
        under = [f"{a:.1f} {(1 - b) * HIGH:.1f}" for a, b in zip(x[::-1], up.at(below)[::-1], strict=True)]
        parts.append(tag("path", d="M" + "L".join(over + under) + "Z", cls=f"area p{PHASES.index(phase) + 1}"))
        below = above
    return framed("Time of a step", [svg(*parts)], across, up)


def _height(areas: Areas) -> Scale:
    """Up to what nearly all steps take: one long step would press the others flat."""
    whole = np.sum(list(areas.seconds.values()), axis=0)
    usual = float(np.quantile(whole, 0.98))
    return Scale(0.0, max(min(float(whole.max()), 2 * usual), 1e-9) * 1.05, unit="seconds")


def _numbers(areas: Areas) -> Html:
    across, up = steps_scale(float(areas.steps[0]), float(areas.steps[-1])), _height(areas)
    x = areas.steps.round().astype(int).tolist()
    lines = [
        {"label": _word(phase), "x": x, "v": [float(f"{value:.3g}") for value in values.tolist()]}
        for phase, values in areas.seconds.items()
    ]
    return data(
        {"x": [across.low, across.high], "y": [up.low, up.high, 0], "unit": "seconds", "stack": 1, "lines": lines}
    )


def _word(phase: str) -> str:
    return _WORDS.get(phase, phase)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and np.isfinite(value) else 0.0
