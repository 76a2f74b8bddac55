"""A layer among its neighbours: one measure at one step, a bar for each."""

from __future__ import annotations

import math

import numpy as np

from seismograd.records import Finding
from seismograd.reports.page.markup import Html, joined, prose, tag
from seismograd.reports.page.material import Material
from seismograd.reports.page.scale import Scale
from seismograd.reports.words import many

_AROUND = 6
"""So many layers are shown on either side."""
_MEANT = 8
"""So many of them may be the sick ones."""

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

WORDS = {
    ("gradient", "norm"): "gradient norm",
    ("update", "ratio"): "update ratio",
    ("update", "changed"): "share of the weights that an update changed",
    ("parameter", "norm"): "weight norm",
    ("parameter", "std"): "standard deviation of the weights",
    ("activation", "dead"): "dead units",
    ("activation", "saturated"): "saturated units",
}


def neighbours(material: Material, finding: Finding) -> Html | None:
    """The layers around the one the finding is about; nothing where it names none, or none was read."""
    wanted = finding.where.parameter or finding.where.module
    if not wanted:
        return None
    for kind, column in dict.fromkeys([_MEASURES.get(finding.id, ("gradient", "norm")), ("gradient", "norm")]):
        heat = material.heat(kind, column, 64, finding.step - 500, finding.step + 500)
        if heat is None:
            continue
        sick = [at for at, name in enumerate(heat.names) if _is(name, wanted)]
        after = [at for at, step in enumerate(heat.steps.tolist()) if step >= finding.step]
        rows = heat.values[sick[0]] if sick else np.zeros(0)
        column_ = next(
            (at for at in [*after, *range(len(heat.steps) - 1, -1, -1)] if sick and not np.isnan(rows[at])), None
        )
        if column_ is None or len(heat.names) < 2:
            continue
        first = max(0, sick[0] - _AROUND)
        last = min(len(heat.names), min(sick[-1], sick[0] + _MEANT) + _AROUND + 1)
        names = heat.names[first:last]
        values = heat.values[first:last, column_]
        what = WORDS[kind, column]
        note = f"The {what} at step {heat.steps[column_]:,} of "
        note += (
            "all layers."
            if len(names) == len(heat.names)
            else f"{len(names)} of {many(len(heat.names), 'layer')}, in their order."
        )
        return _figure(
            f"{what.capitalize()} by layer", names, values, {at - first for at in sick}, note, str(finding.severity)
        )
    return None


def _is(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}.") or wanted.startswith(f"{name}.")


def _figure(title: str, names: tuple[str, ...], values: np.ndarray, sick: set[int], note: str, severity: str) -> Html:  # type: ignore[type-arg]
    share = title.startswith(("Dead", "Saturated", "Share"))
    scale = Scale(0.0, 1.0) if share else Scale.of(np.append(values, 0.0) if _close(values) else values)
    rows = []
    for at, (name, value) in enumerate(zip(names, values.tolist(), strict=True)):
        if math.isnan(value):
            length, text = 0.0, "not read"
        elif math.isinf(value):
            length, text = 1.0, "not finite"
        else:
            length, text = float(scale.at(value)), f"{value:.0%}" if share else scale.written(value)
        kind = "wild" if math.isinf(value) else None
        bar = tag("span", tag("i", style=f"width:{max(length, 0.004):.1%}", cls=kind), cls="bar", aria_hidden="true")
        label = tag("th", tag("bdi", name), scope="row", title=name)
        row = f"sick {severity}" if at in sick else None
        rows.append(tag("tr", label, tag("td", bar), tag("td", text, cls="value"), cls=row))
    scaled = tag("span", "log scale", cls="log") if scale.log else None
    head = tag("div", tag("h4", title), scaled, cls="chart-head")
    return tag("figure", head, tag("table", tag("tbody", joined(rows))), tag("figcaption", prose(note)), cls="bars")


def _close(values: np.ndarray) -> bool:  # type: ignore[type-arg]
    """Whether they are near enough to each other to be shown from zero on."""
    known = values[np.isfinite(values)]
    return bool(known.size and known.min() >= 0 and (known.min() == 0 or known.max() < 100 * known.min()))
