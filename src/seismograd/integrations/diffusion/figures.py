"""The loss by timestep and the course of latents, as plotly figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_RED = "#d62728"


def timestep_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A bar for the loss of each bucket, a mark where it began; buckets with losses that are not finite are red."""
    import plotly.graph_objects as go

    labels = [row["timesteps"] for row in rows]
    colours = [_RED if row["nonfinite"] else "#1f77b4" for row in rows]
    notes = [f"{row['nonfinite']} not finite" if row["nonfinite"] else "" for row in rows]
    figure = go.Figure(go.Bar(name="now", x=labels, y=[row["loss"] for row in rows], marker_color=colours, text=notes))
    mark = {"symbol": "line-ew-open", "size": 18, "color": "#7f7f7f"}
    figure.add_trace(
        go.Scatter(name="at first", x=labels, y=[row["first"] for row in rows], mode="markers", marker=mark)
    )
    figure.update_xaxes(title_text="timestep", type="category")
    figure.update_yaxes(title_text="loss", rangemode="tozero")
    return figure.update_layout(title="Loss by timestep")


def latents_figure(steps: Sequence[Mapping[str, Any]]) -> Figure:
    """The range and the standard deviation of latents over the steps; a red cross where they are not finite."""
    import plotly.graph_objects as go

    at = list(range(len(steps)))
    figure = go.Figure()
    for name, dash in (("max", "dot"), ("std", "solid"), ("mean", "dash"), ("min", "dot")):
        values = [step.get(name) for step in steps]
        figure.add_trace(go.Scatter(name=name, x=at, y=values, mode="lines+markers", line={"dash": dash}))
    bad = [(place, step) for place, step in zip(at, steps, strict=True) if step["has_nan"] or step["has_inf"]]
    if bad:
        cross = {"symbol": "x", "size": 10, "color": _RED}
        places = [place for place, _ in bad]
        figure.add_trace(go.Scatter(name="not finite", x=places, y=[0] * len(bad), mode="markers", marker=cross))
    ticks = [f"{step['step']}" if step["timestep"] is None else f"{step['timestep']:g}" for step in steps]
    figure.update_xaxes(title_text="timestep", tickvals=at, ticktext=ticks)
    return figure.update_layout(title="Latents by timestep", hovermode="x unified")
