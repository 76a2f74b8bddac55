"""Curves over steps, drawn as SVG that stretches with the page; what has to keep its shape is HTML above it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seismograd.records import Severity
from seismograd.reports.page.markup import Html, data, prose, tag
from seismograd.reports.page.scale import Scale, step_ticks, steps_scale
from seismograd.reports.words import many

if TYPE_CHECKING:
    from seismograd.store import Series

Floats = NDArray[np.float64]

WIDE, HIGH = 1000, 300
"""The SVG's own units, whatever room it gets."""
_NEAR = 0.05
"""Marks that are closer share a label."""
_LONE = 40
"""A line of so few points shows them."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: at each place its value, from where to where it went, and what was not finite there."""

    label: str
    first: Floats
    last: Floats
    value: Floats
    low: Floats
    high: Floats
    bad: NDArray[np.int64]
    said: Sequence[str]
    """`NaN`, `Inf`: of what was not finite, the last; empty where all was."""
    count: int

    @property
    def x(self) -> Floats:
        return (self.first + self.last) / 2

    @property
    def thinned(self) -> bool:
        """Whether a point stands for more than it shows."""
        return bool(np.any(self.high > self.low))


@dataclass(frozen=True, slots=True)
class Mark:
    """A step that matters, with what stands at its head."""

    step: float
    label: str
    severity: Severity
    link: str | None = None


def line_of(label: str, series: Series) -> Line:
    """The curve of a stored scalar."""
    value = np.where(np.isfinite(series.mean), series.mean, np.nan)
    bad = np.asarray(series.bad, dtype=np.int64)
    said = ["" if not count else _bad_word(last) for count, last in zip(bad, series.last, strict=True)]
    first, last = np.asarray(series.first, np.float64), np.asarray(series.steps, np.float64)
    return Line(label, first, last, value, series.low, series.high, bad, said, int(np.sum(series.count)))


def line_through(label: str, steps: Iterable[float], values: Iterable[float]) -> Line:
    """A curve through single points."""
    x, y = np.array(list(steps), dtype=np.float64), np.array(list(values), dtype=np.float64)
    bad = (~np.isfinite(y)).astype(np.int64)
    value = np.where(bad, np.nan, y)
    said = ["" if math.isfinite(each) else _bad_word(each) for each in y.tolist()]
    return Line(label, x, x, value, value, value, bad, said, len(x))


def _bad_word(value: float) -> str:
    if math.isfinite(value):  # others of what the point stands for were not
        return "not finite"
    return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    unit: str = "",
    marks: Sequence[Mark] = (),
    window: tuple[float, float] | None = None,
    decades: float | None = 2.0,
    small: bool = False,
    note: str = "",
    numbers: bool = True,
) -> Html:
    """A figure with its curves, its axes, its marks, and what it shows in words; `numbers`: for a script."""
    span = window or (min(float(line.first[0]) for line in lines), max(float(line.last[-1]) for line in lines))
    across = steps_scale(*span)
    up = Scale.of(np.concatenate([part for line in lines for part in (line.low, line.high, line.value)]), unit, decades)
    layers = [_drawing(lines, across, up), *_broken(lines, across), *_marks(marks, across)]
    told = [describe(line, up) for line in lines]
    if note:
        told.append(note)
    scaled = tag("span", "log scale", cls="log") if up.log else None
    parts = (
        tag("div", tag("p", title, cls="title"), scaled, _legend(lines) if len(lines) > 1 else None, cls="chart-head"),
        framed(title, layers, across, up),
        tag("figcaption", prose(" ".join(told))),
        _numbers(lines, across, up) if numbers else None,
    )
    return tag("figure", *parts, cls="chart small" if small else "chart")


def framed(title: str, layers: Iterable[Html], across: Scale, up: Scale) -> Html:
    """A drawing between its axes."""
    y = (tag("span", text, style=f"bottom:{place:.2%}") for place, text in up.ticks())
    return tag(
        "div",
        tag("div", *y, cls="y", aria_hidden="true"),
        tag("div", *layers, cls="plot"),
        tag("div", *x_labels(step_ticks(across)), tag("b", "step"), cls="x", aria_hidden="true"),
        cls="axes",
        data_chart=f"{title} over steps",
    )


def x_labels(ticks: Iterable[tuple[float, str]]) -> list[Html]:
    return [tag("span", text, style=f"left:{place:.2%}") for place, text in ticks]


def describe(line: Line, scale: Scale) -> str:
    """What the curve shows, in words: where it began, where it ended, its extremes, and what was not finite."""
    finite = np.flatnonzero(np.isfinite(line.value))
    name = f"`{line.label}`"
    if not finite.size:
        return f"{name} was never finite in {many(line.count, 'reading')}."
    first, last = finite[0], finite[-1]
    value = line.value
    if first == last:
        text = f"{name} is {scale.written(value[first])} {when(line.first[first], line.last[first])}."
    elif np.nanmax(line.high) == np.nanmin(line.low):
        text = f"{name} stays at {scale.written(value[first])}."
    else:
        low, high = int(np.nanargmin(line.low)), int(np.nanargmax(line.high))
        text = f"{name} goes from {scale.written(value[first])} to {scale.written(value[last])}"
        ends = (value[first], value[last])
        if line.low[low] not in ends:
            text += f", lowest {scale.written(line.low[low])} {when(line.first[low], line.last[low])}"
        if line.high[high] not in ends:
            text += f", highest {scale.written(line.high[high])} {when(line.first[high], line.last[high])}"
        text += "."
    total = int(line.bad.sum())
    if total:
        at = int(np.flatnonzero(line.bad)[0])
        kinds = "/".join(dict.fromkeys(word for word in line.said if word))
        since = f"at step {line.first[at]:,.0f}" if total == 1 else f"from step {line.first[at]:,.0f} on"
        text += f" {many(total, 'value')} not finite ({kinds}), {since}."
    return text


def when(first: float, last: float) -> str:
    """The step, or the steps, that a point stands for."""
    return f"at step {last:,.0f}" if first == last else f"in steps {first:,.0f} to {last:,.0f}"


# -- the drawing -------------------------------------------------------------------------------------------------------


def _drawing(lines: Sequence[Line], across: Scale, up: Scale) -> Html:
    grid = "".join(f"M0 {_y(place)}H{WIDE}" for place, _ in up.ticks())
    parts = [tag("path", d=grid, cls="grid")]
    for number, line in enumerate(lines, 1):
        x = across.at(line.x) * WIDE
        if line.thinned:
            parts.append(tag("path", d=_band(x, up.at(line.low), up.at(line.high)), cls=f"band c{number}"))
    for number, line in enumerate(lines, 1):
        x, y = across.at(line.x) * WIDE, up.at(line.value)
        parts.append(tag("path", d=_path(x, y), cls=f"line c{number}"))
        if np.count_nonzero(np.isfinite(y)) <= _LONE:
            dots = "".join(f"M{a:.1f} {_y(b)}h0" for a, b in zip(x, y, strict=True) if math.isfinite(b))
            parts.append(tag("path", d=dots, cls=f"dots c{number}"))
    return svg(*parts)


def svg(*parts: Html) -> Html:
    """A drawing that fills its place, whatever its shape; what it shows is said elsewhere."""
    return tag(
        "svg", *parts, viewBox=f"0 0 {WIDE} {HIGH}", preserveAspectRatio="none", aria_hidden="true", focusable="false"
    )


def _y(place: float) -> str:
    return f"{(1 - place) * HIGH:.1f}"


def _path(x: Floats, y: Floats) -> str:
    """A line through the points, with a gap where there is none."""
    told, down = [], False
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if math.isfinite(b):
            told.append(f"{'L' if down else 'M'}{a:.1f} {_y(b)}")
        down = math.isfinite(b)
    return "".join(told)


def _band(x: Floats, low: Floats, high: Floats) -> str:
    told = []
    there = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], there.astype(int), [0]])))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        over = [f"{a:.1f} {_y(b)}" for a, b in zip(x[start:stop], high[start:stop], strict=True)]
        under = [f"{a:.1f} {_y(b)}" for a, b in zip(x[start:stop][::-1], low[start:stop][::-1], strict=True)]
        told.append("M" + "L".join(over + under) + "Z")
    return "".join(told)


def _broken(lines: Sequence[Line], across: Scale) -> Iterable[Html]:
    """Hatched where a value was not finite; neighbours are one area, and each says what was there."""
    spans: list[tuple[float, float, str, int]] = []
    for line in lines:
        bad = line.bad > 0
        edges = np.flatnonzero(np.diff(np.concatenate([[0], bad.astype(int), [0]])))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            word = next(word for word in line.said[start:stop] if word)
            spans.append((line.first[start], line.last[stop - 1], word, int(line.bad[start:stop].sum())))
    named, reached = -1.0, -math.inf
    for first, last, word, count in sorted(spans, key=lambda span: (span[0], -span[1])):
        left, right = (float(across.at(step)) for step in (first, last))
        label = None
        if left - named >= _NEAR:
            label, named = tag("span", word if count == 1 else f"{word} \N{MULTIPLICATION SIGN}{count:,}"), left
        elif last <= reached:  # another curve was bad there, too: hatched twice it would hide what is written there
            continue
        reached = max(reached, last)
        side = "bad left" if left > 0.8 else "bad"
        yield tag("div", label, cls=side, style=f"left:{left:.2%};width:{max(0.0, right - left):.2%}")


def _marks(marks: Sequence[Mark], across: Scale) -> Iterable[Html]:
    shown: list[tuple[float, list[Mark]]] = []
    for mark in sorted(marks, key=lambda each: each.step):
        if not across.low <= mark.step <= across.high:
            continue
        place = float(across.at(mark.step))
        if shown and place - shown[-1][0] < _NEAR:
            shown[-1][1].append(mark)
        else:
            shown.append((place, [mark]))
    for place, group in shown:
        worst = max(group, key=lambda each: each.severity.weight)
        text = ", ".join(dict.fromkeys(mark.label for mark in group[:4])) + (
            "\N{HORIZONTAL ELLIPSIS}" * (len(group) > 4)
        )
        if worst.link:
            label = tag("a", text, href=worst.link, aria_label=f"finding {text} at step {worst.step:,.0f}")
        else:
            label = tag("span", text)
        side = f"mark {worst.severity}" + (" left" if place > 0.8 else " right" if place < _NEAR else "")
        yield tag("div", label, cls=side, style=f"left:{place:.2%}")


def _legend(lines: Sequence[Line]) -> Html:
    return tag("ul", *(tag("li", line.label, cls=f"c{at}") for at, line in enumerate(lines, 1)), cls="legend")


def _numbers(lines: Sequence[Line], across: Scale, up: Scale) -> Html:
    """The curves in numbers, for the cross-hair."""
    return data(
        {
            "x": [across.low, across.high],
            "y": [up.low, up.high, int(up.log)],
            "unit": up.unit,
            "lines": [_rounded(line) for line in lines],
        }
    )


def _rounded(line: Line) -> Mapping[str, Any]:
    told: dict[str, Any] = {"label": line.label, "x": line.last.astype(np.int64).tolist(), "v": digits(line.value)}
    if np.any(line.first < line.last):
        told["from"] = line.first.astype(np.int64).tolist()
    if line.thinned:
        told |= {"low": digits(line.low), "high": digits(line.high)}
    if line.bad.any():
        told["bad"] = {str(at): [line.said[at], int(line.bad[at])] for at in np.flatnonzero(line.bad).tolist()}
    return told


def digits(values: Floats) -> list[float | None]:
    """Four digits of each are what can be seen; nothing stands for what is not there."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values.tolist()]
