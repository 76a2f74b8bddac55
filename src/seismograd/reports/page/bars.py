"""A layer among its neighbours: one measure at one step, a bar for each."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seismograd.records import Finding
from seismograd.reports.page.heat import common_part, shortened
from seismograd.reports.page.markup import Html, joined, prose, tag
from seismograd.reports.page.material import Material
from seismograd.reports.page.scale import Scale
from seismograd.reports.words import many

if TYPE_CHECKING:
    from seismograd.store import Heat

_AROUND = 6
"""So many layers are shown on either side."""
_MEANT = 8
"""So many of them may be the sick ones."""
_FAR = 500
"""Steps from the finding to the reading that is shown, at most."""

_GRADIENT = ("gradient", "norm")
_MEASURES = {
    "update-ratio-high": ("update", "ratio"),
    "update-ratio-low": ("update", "ratio"),
    "lr-too-high": ("update", "ratio"),
    "lr-too-low": ("update", "ratio"),
    "precision-underflow": ("update", "changed"),
    "weight-decay-dominates": ("parameter", "norm"),
    "bad-initialization": ("parameter", "std"),
    "nonfinite-parameter": ("parameter", "norm"),
    "dead-units": ("activation", "dead"),
    "saturated-units": ("activation", "saturated"),
}
"""What a finding is about; the others are about the gradient."""

_WORDS = {
    _GRADIENT: "gradient norm",
    ("update", "ratio"): "update ratio",
    ("update", "changed"): "share of the weights that an update changed",
    ("parameter", "norm"): "weight norm",
    ("parameter", "std"): "standard deviation of the weights",
    ("activation", "dead"): "share of dead units",
    ("activation", "saturated"): "share of saturated units",
}


def neighbours(material: Material, finding: Finding) -> Html | None:
    """The layers around the one the finding is about; nothing where it names none, or none was read."""
    wanted = finding.where.parameter or finding.where.module
    if not wanted:
        return None
    for kind, column in dict.fromkeys([_MEASURES.get(finding.id, _GRADIENT), _GRADIENT]):
        heat = material.heat(kind, column, 64, finding.step - _FAR, finding.step + _FAR)
        if heat is None or len(heat.names) < 2:
            continue
        sick = [at for at, name in enumerate(heat.names) if _is(name, wanted)]
        moment = _moment(heat, sick[0], finding.step) if sick else None
        if moment is None:
            continue
        first = max(0, sick[0] - _AROUND)
        last = min(len(heat.names), min(sick[-1], sick[0] + _MEANT) + _AROUND + 1)
        names, values = heat.names[first:last], heat.values[first:last, moment]
        which = "all layers" if len(names) == len(heat.names) else f"{len(names)} of {many(len(heat.names), 'layer')}"
        what = _WORDS[kind, column]
        note = f"The {what} of {which}, in their order, at step {heat.steps[moment]:,}."
        note += f" All names begin with `{cut}`." if (cut := common_part(names)) else ""
        rows, scale = _rows(names, values, {at - first for at in sick}, what.startswith("share"), finding)
        scaled = tag("span", "log scale", cls="log") if scale.log else None
        head = tag("div", tag("p", f"{what.capitalize()} by layer", cls="title"), scaled, cls="chart-head")
        return tag("figure", head, tag("table", tag("tbody", joined(rows))), tag("figcaption", prose(note)), cls="bars")
    return None


def _is(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}.") or wanted.startswith(f"{name}.")


def _moment(heat: Heat, row: int, step: int) -> int | None:
    """The first reading of the layer from the finding on, else the last one before it."""
    read = np.flatnonzero(~np.isnan(heat.values[row]))
    after = read[heat.steps[read] >= step]
    return int(after[0]) if after.size else int(read[-1]) if read.size else None


def _rows(
    names: Sequence[str], values: NDArray[np.float64], sick: Collection[int], share: bool, finding: Finding
) -> tuple[list[Html], Scale]:
    scale = Scale(0.0, 1.0) if share else Scale.of(np.append(values, 0.0) if _close(values) else values)
    rows, cut = [], common_part(names)
    for at, (name, value) in enumerate(zip(names, values.tolist(), strict=True)):
        if math.isnan(value):
            length, text = 0.0, "not read"
        elif math.isinf(value):
            length, text = 1.0, "not finite"
        else:
            length, text = float(scale.at(value)), f"{value:.0%}" if share else scale.written(value)
        fill = tag("i", style=f"width:{length:.1%}", cls="wild" if math.isinf(value) else None)
        label = tag("th", tag("bdi", shortened(name[len(cut) :])), scope="row", title=name)
        bar = tag("td", tag("span", fill, cls="bar", aria_hidden="true"))
        row = f"sick {finding.severity}" if at in sick else None
        rows.append(tag("tr", label, bar, tag("td", text, cls="value"), cls=row))
    return rows, scale


def _close(values: NDArray[np.float64]) -> bool:
    """Whether they are near enough to each other to be shown from zero on."""
    known = values[np.isfinite(values)]
    return bool(known.size and known.min() >= 0 and (known.min() == 0 or known.max() < 100 * known.min()))
