"""A series as a small plot with axes for the terminal; only a console writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seismograd.quiet_rich import Console, ConsoleOptions, RenderResult, Text

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille character, by row and column of its dots."""

_BROKEN = "!"
"""Stands where a value was not finite."""

_NARROWEST = 8
_LABEL = 9
_AXIS = "dim"


@dataclass(frozen=True, slots=True)
class Line:
    """A series: at each step from where to where it went, which may be one point; NaN where it was not finite."""

    name: str
    steps: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True, slots=True)
class Plot:
    """A line over the steps and, if there are, single points of a second series (`o`) on the same axes.

    Values that are all above zero and span more than a hundredfold are set by their logarithm. Where a value was not
    finite a mark stands at the foot.
    """

    line: Line
    points: Line | None = None
    title: str = ""
    style: str = "cyan"
    height: int = 6
    widest: int = 100

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = options.ascii_only
        width = max(_NARROWEST, min(options.max_width, self.widest) - _LABEL - 2)
        yield self._cut(Text.assemble((self.title or self.line.name, "bold")), options.max_width)
        scale = _Scale.of([self.line, *([self.points] if self.points else [])])
        if scale is None:
            yield self._cut(Text("  no finite value", _AXIS), options.max_width)
            return
        rows = self._rows(scale, width, plain)
        bar, tick, corner, dash = ("|", "+", "+", "-") if plain else ("│", "┤", "└", "─")
        middle = (self.height - 1) // 2
        if scale.low == scale.high:
            ticks = {middle: scale.label(0.5)}
        else:
            ticks = {0: scale.label(1.0), self.height - 1: scale.label(0.0)}
            if self.height >= 5:
                ticks[middle] = scale.label(1.0 - middle / (self.height - 1))
        for at, row in enumerate(rows):
            label = ticks.get(at, "")
            yield Text.assemble((f"{label:>{_LABEL}} {tick if label else bar}", _AXIS), row)
        yield Text(f"{'':{_LABEL}} {corner}{dash * width}", _AXIS)
        yield Text(" " * (_LABEL + 2) + _feet(scale.first, scale.last, width), _AXIS)

    def _cut(self, text: Text, width: int) -> Text:
        text.truncate(width, overflow="ellipsis")
        return text

    def _rows(self, scale: _Scale, width: int, plain: bool) -> list[Text]:
        """The picture, a text for each row from the top."""
        across, down = (1, 1) if plain else (2, 4)
        dots = _drawn(self.line, scale, width * across, self.height * down)
        broken = _broken(self.line, scale, width)
        marks = set() if self.points is None else set(_cells(self.points, scale, width, self.height))
        rows = []
        for row in range(self.height):
            text = Text("".join(_cell(dots, row, column, plain) for column in range(width)), self.style)
            for column in range(width):
                if (row, column) in marks:
                    text = _set(text, column, "o", "magenta")
                elif row == self.height - 1 and column in broken:
                    text = _set(text, column, _BROKEN, "bold red")
            text.rstrip()
            rows.append(text)
        return rows


def _cell(dots: set[tuple[int, int]], row: int, column: int, plain: bool) -> str:
    """The character of one cell: a star, or braille of eight dots."""
    if plain:
        return "*" if (row, column) in dots else " "
    bits = sum(_DOTS[y][x] for y in range(4) for x in range(2) if (row * 4 + y, column * 2 + x) in dots)
    return chr(0x2800 + bits) if bits else " "


def _set(text: Text, column: int, letter: str, style: str) -> Text:
    return Text.assemble(text[:column], (letter, style), text[column + 1 :])


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where values and steps come to stand."""

    first: float
    last: float
    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, lines: Sequence[Line]) -> _Scale | None:
        """The axes that hold all of these; `None` where nothing is finite."""
        values = [value for line in lines for value in (*line.low, *line.high) if math.isfinite(value)]
        steps = [float(step) for line in lines for step in line.steps]
        if not values:
            return None
        low, high = min(values), max(values)
        logarithmic = low > 0.0 and high > 100.0 * low
        if logarithmic:
            low, high = math.log(low), math.log(high)
        if not math.isfinite(high - low):  # from -1e308 to 1e308
            low, high = low / 4, high / 4
        return cls(min(steps), max(steps), low, high, logarithmic)

    def row(self, value: float, height: int) -> int:
        """From 0, the top, on."""
        placed = math.log(value) if self.logarithmic else value
        share = (placed - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return height - 1 - min(max(int(share * height), 0), height - 1)

    def column(self, step: float, width: int) -> int:
        share = (step - self.first) / (self.last - self.first) if self.last > self.first else 0.0
        return min(max(int(share * width), 0), width - 1)

    def label(self, share: float) -> str:
        value = self.low + share * (self.high - self.low)
        return f"{math.exp(value) if self.logarithmic else value:.3g}"


def _drawn(line: Line, scale: _Scale, width: int, height: int) -> set[tuple[int, int]]:
    """The dots of the line, by row and column: the whole reach of every point, and what joins one to the next."""
    dots: set[tuple[int, int]] = set()
    before: tuple[int, int] | None = None
    for step, low, high in zip(line.steps, line.low, line.high, strict=True):
        if not (math.isfinite(low) and math.isfinite(high)):
            before = None
            continue
        column, top, foot = scale.column(step, width), scale.row(high, height), scale.row(low, height)
        dots.update((row, column) for row in range(top, foot + 1))
        middle = (top + foot) // 2
        if before is not None:
            dots.update(_joined(before, (middle, column)))
        before = (middle, column)
    return dots


def _broken(line: Line, scale: _Scale, width: int) -> set[int]:
    """The columns in which a value was not finite, and those between two of them."""
    columns: set[int] = set()
    before: int | None = None
    for step, low, high in zip(line.steps, line.low, line.high, strict=True):
        if math.isfinite(low) and math.isfinite(high):
            before = None
            continue
        column = scale.column(step, width)
        columns.update(range(column if before is None else before, column + 1))
        before = column
    return columns


def _joined(start: tuple[int, int], stop: tuple[int, int]) -> set[tuple[int, int]]:
    (row, column), (to_row, to_column) = start, stop
    number = max(abs(to_row - row), abs(to_column - column), 1)
    return {
        (row + round((to_row - row) * at / number), column + round((to_column - column) * at / number))
        for at in range(number + 1)
    }


def _cells(line: Line, scale: _Scale, width: int, height: int) -> list[tuple[int, int]]:
    return [
        (scale.row(high, height), scale.column(step, width))
        for step, high in zip(line.steps, line.high, strict=True)
        if math.isfinite(high)
    ]


def _feet(first: float, last: float, width: int) -> str:
    """The steps below the axis: the first, the last and, where there is room, the one in the middle."""
    left, right, middle = f"{first:,.0f}", f"{last:,.0f}", f"{(first + last) / 2:,.0f}"
    if first == last:
        return left
    room = width - len(left) - len(right)
    if room < 1:
        return left
    if last - first < 4 or room < len(middle) + 4:
        return left + " " * room + right
    return left + middle.center(room) + right
