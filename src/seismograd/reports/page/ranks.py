"""The ranks of a run side by side: a table, their losses and times as curves, and a map where they are many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from seismograd.amounts import duration, number
from seismograd.reports.across import Spread, across, chosen
from seismograd.reports.page.curves import Line, Mark, chart, line_of, line_through
from seismograd.reports.page.findings import badge, title_of, unit_of
from seismograd.reports.page.heat import fitted, panel
from seismograd.reports.page.markup import Html, joined, tag
from seismograd.reports.page.material import Material
from seismograd.reports.page.scale import Scale
from seismograd.reports.ranks import Side, gravest_first, number_of
from seismograd.reports.words import ended_by, many

_LINES = 6
"""So many ranks have a curve each; of more the middle is drawn, and who is far from it."""
_ROWS, _GRAVEST = 32, 16
"""So many ranks have a row of the table; of more only the gravest have one."""
_POINTS = 160
_READ = 1024
"""So many ranks are read for a page."""
_SHARED = (
    ("ranks/wait", "What the slowest rank costs the others"),
    ("ranks/grad/norm", "Gradient norm of the whole model"),
)
"""What the first rank knows of all of them."""


def rank_section(material: Material, prefix: str, marks: Sequence[Mark]) -> Html | None:
    """The part of the page on ranks; none for a run that has but one."""
    sides = material.report.get("ranks") or ()
    if len(material.ranks) < 2 and len(sides) < 2:
        return None
    parts = [_table(sides) if sides else None, *_shared(material, marks), *_curves(material, sides, prefix, marks)]
    there = [part for part in parts if part is not None]
    return joined(there) if there else None


# -- the table ---------------------------------------------------------------------------------------------------------


def _table(sides: Sequence[Side]) -> Html:
    shown = list(sides) if len(sides) <= _ROWS else gravest_first(sides)[:_GRAVEST]
    columns = ["rank", "host", "attempt", "status", "steps", "last loss", "time of a step", "overhead", "findings", ""]
    rows = [_row(side) for side in shown]
    kept = [
        at
        for at, name in enumerate(columns)
        if (name not in ("host", "attempt") or len({row[at] for row in map(_texts, sides)}) > 1)
        and any(_texts(side)[at] for side in shown)
    ]
    head = tag("tr", *(tag("th", columns[at], scope="col", cls=_side(at)) for at in kept))
    body = (
        tag(
            "tr",
            *(tag("th" if at == 0 else "td", row[at], scope="row" if at == 0 else None, cls=_side(at)) for at in kept),
        )
        for row in rows
    )
    table = tag("table", tag("thead", head), tag("tbody", *body), cls="ranks")
    rest = len(sides) - len(shown)
    note = tag(
        "p", f"The {len(shown)} ranks that most call for a look; {rest:,} more are not listed.", cls="hint after"
    )
    whole = tag("div", table, cls="scroll wide", tabindex="0", role="region", aria_label="Ranks side by side")
    return joined((whole, note if rest else None))


_NUMBERS = (0, 4, 5, 6, 7)


def _side(at: int) -> str | None:
    return "number" if at in _NUMBERS else None


def _texts(side: Side) -> list[str]:
    loss, seconds, share = (number_of(side.get(name)) for name in ("loss", "seconds", "overhead"))
    found = side.get("findings") or {}
    life = side.get("life")
    last = [*ended_by({"exit": side.get("exit") or {}}), *([str(life)] if life in ("live", "lost") else [])]
    return [
        str(side["rank"]),
        str(side.get("host") or ""),
        str(side.get("attempt") or 0),
        str(side.get("status") or "healthy"),
        f"{side.get('steps') or 0:,}",
        "" if loss is None else number(loss),
        "" if seconds is None or not math.isfinite(seconds) else duration(seconds),
        "" if share is None or not math.isfinite(share) else f"{share:.1%}",
        ", ".join(f"{found[kind]} {kind}" for kind in ("critical", "warning", "info") if found.get(kind)),
        ", ".join(last),
    ]


def _row(side: Side) -> list[object]:
    texts = _texts(side)
    loss = number_of(side.get("loss"))
    cells: list[object] = list(texts)
    cells[3] = badge(texts[3])
    if loss is not None and not math.isfinite(loss):
        cells[5] = tag("strong", texts[5], cls="critical")
    return cells


# -- curves and maps ---------------------------------------------------------------------------------------------------


def _shared(material: Material, marks: Sequence[Mark]) -> Iterable[Html]:
    found = material.series([name for name, _ in _SHARED])
    for name, title in _SHARED:
        if name in found:
            unit = "seconds" if name == "ranks/wait" else ""
            yield chart(title, [line_of(title.lower(), found[name])], unit=unit, marks=marks, small=True)


def _curves(material: Material, sides: Sequence[Side], prefix: str, marks: Sequence[Mark]) -> Iterable[Html]:
    if material.stored is None or material.brief:
        return
    losses = sorted(name for name in material.names if name == "loss" or name.startswith("loss/"))
    names = [*losses[:1], *(name for name in ("time/step",) if name in material.names)]
    ranks = chosen(material.ranks, sides, _READ)
    note = f"{len(ranks):,} of {len(material.ranks):,} ranks were read." if len(ranks) < len(material.ranks) else ""
    for name, spread in across(material.stored, names, ranks, points=_POINTS).items():
        title = f"{title_of(name)} by rank"
        if len(spread.ranks) <= _LINES:
            lines = [_line(spread, at) for at in range(len(spread.ranks))]
            yield chart(title, lines, unit=unit_of(name), marks=marks)
            continue
        yield chart(title, [_all(spread), *_outliers(spread)], unit=unit_of(name), marks=marks, note=note)
        rows = fitted([f"rank {rank}" for rank in spread.ranks], spread.steps, _wild(spread))
        scale = Scale.of(rows.values, unit_of(name), 1.0)
        about = "A row for each rank: one that is not like its neighbours shows as a stripe."
        ident = f"{prefix}map-{name.replace('/', '-')}"
        yield panel(ident, f"{title_of(name)} of each rank", about, rows, scale=scale, of="ranks")


def _line(spread: Spread, row: int) -> Line:
    """The curve of one rank, as far as it was read."""
    values, bad = spread.values[row], spread.bad[row]
    read = np.isfinite(values) | (bad > 0)
    middle = (spread.first + spread.steps) / 2
    value = np.where(bad > 0, np.nan, values)
    return line_through(f"rank {spread.ranks[row]}", middle[read].tolist(), value[read].tolist())


def _wild(spread: Spread) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """What was not finite as the map knows it."""
    return np.where(spread.bad > 0, np.inf, spread.values)


def _all(spread: Spread) -> Line:
    """The median of all ranks, and from the lowest of them to the highest."""
    told = spread.told()
    median, low, high = (np.array(told[name], dtype=np.float64) for name in ("median", "low", "high"))
    first, last = spread.first.astype(np.float64), spread.steps.astype(np.float64)
    none = np.zeros(len(first), np.int64)
    label = f"median of {many(len(spread.ranks), 'rank')}, lowest to highest"
    return Line(label, first, last, median, low, high, none, [""] * len(first), int(np.sum(told["count"])))


def _outliers(spread: Spread) -> list[Line]:
    rows = {rank: at for at, rank in enumerate(spread.ranks.tolist())}
    return [_line(spread, rows[rank]) for rank in spread.outliers(4)]
