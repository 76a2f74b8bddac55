"""A tuning as a plotly figure: speed-ups with their intervals, and the short loss curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from seismograd.optimize.tuning.tuned import Tuning

_COLOURS = {
    "recommended": "#2ca02c",
    "faster": "#98df8a",
    "changes learning": "#d62728",
    "no faster": "#7f7f7f",
    "slower": "#c7c7c7",
    "too few measurements": "#bcbd22",
}


def figure_of(tuning: Tuning) -> Figure:
    """Above the speed-up of each variant, the fastest first, with its interval; below the loss over the steps."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    measured = [one for one in tuning.outcomes if one.speedup is not None]
    measured.sort(key=lambda one: one.speedup_factor or 0.0)
    tall = max(180, 34 * len(measured) + 80)
    figure = make_subplots(
        rows=2,
        cols=1,
        row_heights=[tall, 380],
        vertical_spacing=90 / (tall + 380),
        subplot_titles=("Speed-up over the baseline, with its 95 % interval", "Loss of the first steps"),
    )
    for verdict in dict.fromkeys(one.verdict for one in measured):
        own = [one for one in measured if one.verdict == verdict]
        speeds = [one.speedup for one in own if one.speedup is not None]
        figure.add_trace(
            go.Scatter(
                name=verdict,
                x=[speed.middle for speed in speeds],
                y=[one.name for one in own],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [speed.high - speed.middle for speed in speeds],
                    "arrayminus": [speed.middle - speed.low for speed in speeds],
                },
                text=[_hover(one.parity.verdict if one.parity else "", one.memory_savings) for one in own],
                hovertemplate="%{y}: %{x:.2f}x<br>%{text}<extra></extra>",
                mode="markers",
                marker={"size": 11, "color": _COLOURS.get(verdict, "#1f77b4")},
                legend="legend",
            ),
            row=1,
            col=1,
        )
    figure.add_vline(x=1.0, line_dash="dash", line_color="#555", row=1, col=1)
    figure.update_yaxes(categoryorder="array", categoryarray=[one.name for one in measured], row=1, col=1)
    figure.update_xaxes(title_text="times as fast", row=1, col=1)
    _curves(figure, tuning)
    figure.update_xaxes(title_text="step", row=2, col=1)
    figure.update_yaxes(title_text="loss", row=2, col=1)
    end = (380 / (tall + 380)) * (1 - 90 / (tall + 380))
    return figure.update_layout(
        title="seismograd tune",
        height=tall + 380 + 160,
        hovermode="closest",
        legend={"y": 1.0, "yanchor": "top"},
        legend2={"y": end, "yanchor": "top"},
    )


def _curves(figure: Figure, tuning: Tuning) -> None:
    import plotly.graph_objects as go

    def line(name: str, curve: list[float], **style: object) -> None:
        scatter = go.Scatter(
            name=name, x=list(range(1, len(curve) + 1)), y=curve, mode="lines", legend="legend2", **style
        )
        figure.add_trace(scatter, row=2, col=1)

    for name, curve in tuning.curves.items():
        if name.startswith("seed "):
            first = name == "seed 1"
            grey = {"color": "#bbbbbb", "width": 1}
            line("other seeds", curve, line=grey, showlegend=first, legendgroup="seeds")
    for name, curve in tuning.curves.items():
        if not name.startswith("seed "):
            line(name, curve, line={"color": "#000000", "width": 2, "dash": "dot" if name == "float64" else "solid"})
    for one in tuning.outcomes:
        if one.parity is not None and len(one.parity.curve) == len(next(iter(tuning.curves.values()))):
            own = one.verdict in ("recommended", "changes learning")
            line(one.name, list(one.parity.curve), visible=True if own else "legendonly")


def _hover(parity: str, saved: float | None) -> str:
    memory = "" if saved is None else f"<br>memory {-saved:+.0%}"
    return f"{parity}{memory}"
