"""Layers over steps as heat maps: each is one small image, its rows named, its cells read out by the script."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from seismograd.reports.page.curves import x_labels
from seismograd.reports.page.markup import Html, data, joined, prose, tag
from seismograd.reports.page.material import Material
from seismograd.reports.page.scale import Scale, short
from seismograd.reports.words import many

Cells = NDArray[np.uint8]

MAPS = (
    ("gradient", "norm", "Gradient norm", "The norm of each parameter's gradient."),
    ("update", "ratio", "Update ratio", "How far each update moved a parameter, as a share of its own norm."),
    ("activation", "dead", "Dead units", "The share of each layer's units that fired on none of the last 256 samples."),
)

_CELLS = 60_000
"""Of one map: more would make the page heavy, and nobody sees them."""
_MOST_ROWS = 500
_SHORT = 24
"""Names that are no longer are shown whole."""
_ROOM = 30
"""So many characters of a name have room beside the map."""
_LARGE = 40
"""Maps with more rows have lower ones."""
_SAMPLES = (40, 160)
_UNREAD, _BROKEN, _ZERO, _FIRST = 0, 1, 2, 3
_LEVELS = 255 - _FIRST

_STOPS = (
    (0.0, (226, 238, 247)),
    (0.3, (158, 198, 225)),
    (0.6, (66, 134, 190)),
    (0.85, (16, 78, 139)),
    (1.0, (6, 40, 84)),
)
_WILD = (213, 94, 0)
_NONE = (205, 198, 184)


@dataclass(frozen=True, slots=True)
class Table:
    """What one map shows: a row for each layer, or for each group of them where they are too many."""

    names: tuple[str, ...]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    grouped: str = ""
    """How rows were put together, if they were."""


def heat_maps(material: Material, prefix: str) -> Html | None:
    """All maps that there is something to show of, one at a time where the script runs."""
    tabs, panels = [], []
    for kind, column, title, about in MAPS:
        heat = material.heat(kind, column, _SAMPLES[1])
        if heat is None:
            continue
        ident = f"{prefix}map-{kind}"
        table = fitted(heat.names, heat.steps, heat.values)
        tabs.append(tag("button", title, type="button", data_for=ident))
        panels.append(panel(ident, title, about, table, share=kind == "activation"))
    if not panels:
        return None
    bar = tag("div", *tabs, cls="tabs", hidden=True, aria_label="Measures of the layers")
    return tag("div", bar, *panels, cls="maps")


def fitted(names: Sequence[str], steps: NDArray[np.int64], values: NDArray[np.float64]) -> Table:
    """At most so many rows: parameters of one module become one, then modules of one parent, and so on.

    A row shows the greatest of what it stands for, and so what is not finite; a column does too.
    """
    whole, grouped, depth = tuple(names), "", max((name.count(".") for name in names), default=0)
    rows = list(names)
    while len(dict.fromkeys(rows)) > _MOST_ROWS and depth > 0:
        rows = [".".join(name.split(".")[:depth]) for name in whole]
        depth -= 1
    labels = list(dict.fromkeys(rows))
    if len(labels) > _MOST_ROWS:  # one flat list of very many: neighbours share a row
        size = -(-len(labels) // _MOST_ROWS)
        place = {label: at // size for at, label in enumerate(labels)}
        ends = [(labels[at], labels[min(at + size, len(labels)) - 1]) for at in range(0, len(labels), size)]
        rows = [f"{ends[place[row]][0]} \N{HORIZONTAL ELLIPSIS} {ends[place[row]][1]}" for row in rows]
        labels = list(dict.fromkeys(rows))
    if len(labels) < len(whole):
        grouped = (
            f"{len(whole):,} rows would be too many to read: {len(labels):,} groups of them are shown, each by its"
        )
        grouped += " greatest value."
        number = {label: at for at, label in enumerate(labels)}
        table = np.full((len(labels), len(steps)), np.nan)
        for at, row in enumerate(rows):
            table[number[row]] = np.fmax(table[number[row]], values[at])
        values = table
    columns = min(max(_CELLS // max(len(labels), 1), _SAMPLES[0]), _SAMPLES[1])
    if len(steps) > columns:
        starts = np.arange(0, len(steps), -(-len(steps) // columns))
        values = np.fmax.reduceat(values, starts, axis=1)
        steps = steps[np.append(starts[1:], len(steps)) - 1]
    return Table(tuple(labels), steps, values, grouped)


def panel(
    ident: str,
    title: str,
    about: str,
    table: Table,
    *,
    share: bool = False,
    scale: Scale | None = None,
    of: str = "layers",
) -> Html:
    """One map with its key and what it shows in words; `of` says what its rows are."""
    scale = scale or (Scale(0.0, 1.0) if share else scale_of(table.values))
    cells = cells_of(table.values, scale, apart=not share)
    steps = table.steps.tolist()
    ticks = [((at + 0.5) / len(steps), short(steps[at])) for at in _few(len(steps), 6)]
    scaled = tag("span", "log scale", cls="log") if scale.log else None
    notes = [table.grouped] if table.grouped else []
    gaps = np.diff(table.steps)
    if gaps.size and gaps.max() > 2 * gaps.min():
        notes.append("Each column is a reading; they are not equally many steps apart.")
    if cut := common_part(table.names):
        notes.append(prose(f"All names begin with `{cut}`."))
    numbers = {
        "steps": steps,
        "cells": _base64(cells.tobytes()),
        "scale": [scale.low, scale.high, int(scale.log)],
        "share": share,
    }
    parts = (
        tag("div", tag("p", title, cls="title"), scaled, _key(scale, cells, share), cls="chart-head"),
        tag("div", _grid(title, table.names, cells, of), cls="scroll"),
        tag("div", *x_labels(ticks), tag("b", "step"), cls="x", aria_hidden="true"),
        tag("figcaption", joined((about, prose(_described(table, scale, share)), *notes), " ")),
        data(numbers),
    )
    many_rows = len(table.names) > _LARGE
    dense = many_rows and of == "ranks"  # all of it at once: what is sought is the one that is not like the others
    return tag("figure", *parts, cls="heat many dense" if dense else "heat many" if many_rows else "heat", id=ident)


def _grid(title: str, names: Sequence[str], cells: Cells, of: str) -> Html:
    """The names of the rows, and the image beside them."""
    cut = common_part(names)
    rows = [
        tag("li", tag("bdi", shortened(name[len(cut) :])), title=name, cls=_row_class(names, at, of))
        for at, name in enumerate(names)
    ]
    picture = tag("img", src=f"data:image/png;base64,{_base64(png(cells))}", alt="", draggable="false")
    cursor = tag("i", cls="cursor", hidden=True)
    image = tag("div", picture, cursor, cls="cells", data_heat=f"{title}, {of} over steps")
    return tag("div", tag("ol", joined(rows), cls="rows"), image, cls="grid", style=f"--rows:{len(names)}")


def scale_of(values: NDArray[np.float64]) -> Scale:
    """From the smallest to the greatest value that is not zero; by the logarithm where they span more than a decade."""
    known = values[np.isfinite(values) & (values > 0)]
    if not known.size:
        return Scale(0.0, 1.0)
    low, high = float(known.min()), float(known.max())
    if high > 10 * low:
        return Scale(low, high, log=True)
    return Scale(0.0, high)


def cells_of(values: NDArray[np.float64], scale: Scale, apart: bool = True) -> Cells:
    """A number for each cell: not read, not finite, zero (if that is told apart), or how great it is."""
    levels = _FIRST + np.nan_to_num(scale.at(values)) * _LEVELS
    if apart:
        levels = np.where(values == 0, _ZERO, levels)
    levels = np.where(np.isinf(values), _BROKEN, np.where(np.isnan(values), _UNREAD, levels))
    return levels.round().astype(np.uint8)


def png(cells: Cells) -> bytes:
    """An image with a pixel for each cell; what was not read lets the page through."""
    high, wide = cells.shape
    colours = [_NONE, _WILD, _NONE, *(_colour(at / _LEVELS) for at in range(_LEVELS + 1))]
    lines = np.concatenate([np.zeros((high, 1), np.uint8), cells], axis=1)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(part for colour in colours for part in colour)),
            _chunk(b"tRNS", b"\x00"),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _colour(place: float) -> tuple[int, int, int]:
    """Blue, from light to dark: told apart by everybody, and from the orange of what is not finite."""
    for (low, one), (high, other) in pairwise(_STOPS):
        if place <= high:
            share = (place - low) / (high - low)
            red, green, blue = (round(a + share * (b - a)) for a, b in zip(one, other, strict=True))
            return red, green, blue
    return _STOPS[-1][1]


def _key(scale: Scale, cells: Cells, share: bool) -> Html:
    """What the colours mean."""
    ends = ("0 %", "100 %") if share else (scale.written(scale.low), scale.written(scale.high))
    parts = [tag("span", tag("span", ends[0]), tag("i", cls="ramp"), tag("span", ends[1]), cls="range")]
    for code, word, cls in ((_ZERO, "zero", "none"), (_BROKEN, "not finite", "wild"), (_UNREAD, "not read", "unread")):
        if (cells == code).any():
            parts.append(tag("span", tag("i", cls=cls), word))
    return tag("div", *parts, cls="key")


def _described(table: Table, scale: Scale, share: bool) -> str:
    """What the map shows, in words."""
    values, names = table.values, table.names
    wild = np.argwhere(np.isinf(values))
    if share:
        last = np.array([row[~np.isnan(row)][-1] if (~np.isnan(row)).any() else np.nan for row in values])
        worst = int(np.nanargmax(last)) if np.isfinite(last).any() else 0
        text = "In the end there are none."
        if last[worst] > 0:
            text = f"In the end `{names[worst]}` has the most, {last[worst]:.0%}."
    else:
        with np.errstate(all="ignore"):
            finite = np.where(np.isfinite(values) & (values > 0), values, np.nan)
            middle = np.array([np.nanmedian(row) if np.isfinite(row).any() else np.nan for row in finite])
        if not np.isfinite(middle).any():
            text = "No value above zero was read."
        else:
            low, high = int(np.nanargmin(middle)), int(np.nanargmax(middle))
            text = f"By their medians, `{names[high]}` is greatest ({scale.written(middle[high])})"
            text += f" and `{names[low]}` smallest ({scale.written(middle[low])})." if low != high else "."
    if len(wild):
        step = table.steps[wild[:, 1].min()]
        rows = len(np.unique(wild[:, 0]))
        text += f" In {rows:,} of {many(len(names), 'row')} it is not finite, from step {step:,} on."
    return text


def common_part(names: Sequence[str]) -> str:
    """What all names begin with, if they are too long to be shown with it."""
    if len(names) < 2 or max(map(len, names)) <= _SHORT:
        return ""
    parts = [name.split(".") for name in names]
    same = [len(set(pieces)) == 1 for pieces in zip(*(part[:-1] for part in parts), strict=False)]
    return "".join(f"{piece}." for piece in parts[0][: [*same, False].index(False)])


def shortened(name: str, most: int = _ROOM) -> str:
    """A name in little room: `encoder_blo….73.weight`. Its longest parts lose their ends, what is short stays whole."""
    parts, cut = name.split("."), name
    for longest in range(max(map(len, parts)), 2, -1):
        cut = ".".join(
            part if len(part) <= longest else f"{part[: longest - 1]}\N{HORIZONTAL ELLIPSIS}" for part in parts
        )
        if len(cut) <= most:
            break
    return cut


def _row_class(names: Sequence[str], at: int, of: str) -> str | None:
    """Where another part of the model begins there is a line; every so many rows keep their name on paper."""
    told = []
    if of == "layers" and at and _part(names[at]) != _part(names[at - 1]):
        told.append("part")
    if at % -(-len(names) // (60 if of == "layers" else 30)) == 0:
        told.append("kept")
    return " ".join(told) or None


def _part(name: str) -> str:
    """The block that a parameter belongs to: all but its last two names, or its first."""
    pieces = name.split(".")
    return ".".join(pieces[: max(1, len(pieces) - 2)])


def _few(count: int, most: int) -> list[int]:
    """Some places among so many, first and last too."""
    if count <= most:
        return list(range(count))
    return [round(at * (count - 1) / (most - 1)) for at in range(most)]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
