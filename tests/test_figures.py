"""The figures hold the values they are given, and show what is not finite."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from seismograd.history import TrainingHistory
from seismograd.reports.figures import history_figure, plot_gradients, range_figure


def traces(figure):
    return {trace.name: trace for trace in figure.data}


@pytest.fixture
def history():
    history = TrainingHistory()
    for step, loss in enumerate([math.nan, 1.0, 0.5, math.inf, 0.25]):
        history.record(10 * step, loss, grad_norm=10.0**step, lr=0.1, val_loss=2.0 if step % 2 else None)
    return history


def test_curves_over_their_own_steps(history):
    curves = traces(history_figure(history))
    assert list(curves["loss"].x) == [0, 10, 20, 30, 40]
    assert list(curves["val_loss"].x) == [10, 30]
    assert list(curves["grad_norm"].y) == [1.0, 10.0, 100.0, 1000.0, 10000.0]
    assert list(curves["learning_rate"].y) == [0.1] * 5


def test_gaps_are_marked_where_they_are(history):
    curves = traces(history_figure(history))
    marks = curves["loss not finite"]
    assert (list(marks.x), list(marks.y), list(marks.text)) == ([0, 30], [1.0, 0.5], ["nan", "inf"])
    assert marks.mode == "markers"
    assert "grad_norm not finite" not in curves
    assert not curves["loss"].connectgaps


def test_a_scale_that_fits(history):
    figure = history_figure(history)
    assert figure.layout.yaxis.type == "linear"
    assert figure.layout.yaxis2.type == "log"
    history.loss[2] = -1.0
    history.grad_norm[0] = 0.0
    assert history_figure(history).layout.yaxis2.type == "linear", "zero has no logarithm"


def test_an_empty_history_and_one_without_validation_can_be_drawn():
    assert set(traces(TrainingHistory().plot())) == {"loss", "grad_norm", "learning_rate"}


def test_figures_are_valid_json(history):
    json.loads(history_figure(history).to_json(), parse_constant=pytest.fail)


def test_gradients_by_layer():
    values = np.arange(1.0, 102.0)
    boxes = traces(plot_gradients({"a": -values, "b": np.array([0.0, 0.0, 3.0, np.nan]), "none": None}))
    assert set(boxes) == {"a", "b"}
    assert (boxes["a"].q1[0], boxes["a"].median[0], boxes["a"].q3[0]) == (26.0, 51.0, 76.0)
    assert boxes["a"].x[0] == "a"
    assert boxes["b"].median[0] == 3.0
    assert boxes["b"].x[0] == "b (50% zero, 1 NaN)"


def test_a_layer_without_any_gradient_is_still_named():
    figure = plot_gradients({"dead": np.zeros(4), "alive": np.ones(4)})
    assert traces(figure)["dead"].x[0] == "dead (100% zero)"
    with pytest.raises(ValueError, match="no gradients"):
        plot_gradients({})


def test_a_figure_does_not_grow_with_the_model():
    assert len(plot_gradients({"large": np.random.default_rng(0).normal(size=1_000_000)}).to_json()) < 20_000


def test_the_suggestion_is_marked():
    figure = range_figure([1e-4, 1e-3, 1e-2], [3.0, 2.0, 4.0], suggested_lr=1e-3)
    assert list(figure.data[0].y) == [3.0, 2.0, 4.0]
    assert figure.layout.xaxis.type == "log"
    assert list(traces(figure)["suggested: 1.00e-03"].x) == [1e-3, 1e-3]
    assert len(range_figure([1e-4], [3.0]).data) == 1


def test_plotly_is_not_imported_before_it_is_needed():
    program = "import sys, seismograd.reports.figures\nassert not {'plotly', 'torch'} & set(sys.modules)\n"
    subprocess.run([sys.executable, "-c", program], check=True)
