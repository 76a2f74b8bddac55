"""Curves and distributions as plotly figures. Plotly is imported when a figure is drawn, for it takes its time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seismograd.stats.arrays import Arrays, GradientStats, named_arrays

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from seismograd.history import TrainingHistory

_RED = "#d62728"


def history_figure(history: TrainingHistory) -> Figure:
    """Loss and validation loss, gradient norm, and learning rate, above one another over the steps.

    A value that is not finite leaves a gap in its curve and a red cross, at the height of the last finite value.
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=3, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.5, 0.25, 0.25])
    steps = history.steps()
    _curve(figure, 1, "loss", steps, history.loss)
    if history.val_loss:
        _curve(figure, 1, "val_loss", history.val_steps(), history.val_loss)
    _curve(figure, 2, "grad_norm", steps, history.grad_norm)
    _curve(figure, 3, "learning_rate", steps, history.learning_rate)
    for row, title, values in (
        (1, "loss", [*history.loss, *history.val_loss]),
        (2, "gradient norm", history.grad_norm),
        (3, "learning rate", history.learning_rate),
    ):
        figure.update_yaxes(title_text=title, type="log" if _spans_decades(values) else "linear", row=row, col=1)
    figure.update_xaxes(title_text="step", row=3, col=1)
    return figure.update_layout(title="Training history", hovermode="x unified")


def plot_gradients(gradients: Arrays) -> Figure:
    """The magnitudes of each layer's gradients: a box over the quartiles and whiskers at 1 % and 99 %, on a log scale.

    Zeros have no place on it; their share, and whatever is not finite, stands beside the layer's name.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, array in named_arrays(gradients).items():
        sizes = np.abs(array[np.isfinite(array)])
        sizes = sizes[sizes > 0]
        box: dict[str, Any] = {}
        if sizes.size:  # quantiles instead of the values: a page should not weigh as much as the model
            low, q1, median, q3, high = ([float(q)] for q in np.quantile(sizes, [0.01, 0.25, 0.5, 0.75, 0.99]))
            box = {"lowerfence": low, "q1": q1, "median": median, "q3": q3, "upperfence": high}
        label = name + _remark(GradientStats.from_gradients([array]))
        figure.add_trace(go.Box(name=name, x=[label], showlegend=False, **box))
    if not figure.data:
        raise ValueError("no gradients were given: pass at least one array that has elements")
    figure.update_yaxes(title_text="gradient magnitude", type="log", exponentformat="power")
    return figure.update_layout(title="Gradients by layer")


def range_figure(
    lrs: Sequence[float],
    losses: Sequence[float],
    suggested_lr: float | None = None,
    interval: tuple[float, float] | None = None,
) -> Figure:
    """The loss over the learning rates of a range test, with a line at the suggestion, and the interval around it."""
    import plotly.graph_objects as go

    figure = go.Figure(go.Scatter(name="loss", x=list(lrs), y=list(losses), mode="lines+markers"))
    if suggested_lr is not None:
        ends = [min(losses), max(losses)]  # a trace, for on a log axis plotly puts annotations elsewhere than shapes
        name = f"suggested: {suggested_lr:.2e}"
        figure.add_trace(go.Scatter(name=name, x=[suggested_lr] * 2, y=ends, mode="lines", line={"dash": "dash"}))
    if interval is not None:
        figure.add_vrect(x0=interval[0], x1=interval[1], opacity=0.1, line_width=0, fillcolor="green")
    figure.update_xaxes(title_text="learning rate", type="log", exponentformat="power")
    figure.update_yaxes(title_text="loss")
    return figure.update_layout(title="Learning rate range test")


def _curve(figure: Figure, row: int, name: str, steps: Sequence[int], values: Sequence[float]) -> None:
    import plotly.graph_objects as go

    figure.add_trace(go.Scatter(name=name, x=list(steps), y=list(values), mode="lines"), row=row, col=1)
    level = next((value for value in values if math.isfinite(value)), 1.0)
    marks: list[tuple[int, float, str]] = []
    for step, value in zip(steps, values, strict=False):
        if math.isfinite(value):
            level = value
        else:
            marks.append((step, level, str(value)))
    if marks:
        x, y, text = (list(column) for column in zip(*marks, strict=True))
        cross = {"symbol": "x", "size": 9, "color": _RED}
        figure.add_trace(
            go.Scatter(name=f"{name} not finite", x=x, y=y, text=text, mode="markers", marker=cross), row=row, col=1
        )


def _spans_decades(values: Sequence[float]) -> bool:
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > 100 * min(finite)


def _remark(stats: GradientStats) -> str:
    remarks: Mapping[str, bool] = {
        f"{stats.num_zeros / stats.total_elements:.0%} zero": stats.num_zeros > 0,
        f"{stats.num_nans} NaN": stats.num_nans > 0,
        f"{stats.num_infs} Inf": stats.num_infs > 0,
    }
    said = [remark for remark, holds in remarks.items() if holds]
    return f" ({', '.join(said)})" if said else ""
