"""Dead and saturated units: fires, stays silent, sits on the limit."""

import numpy as np
import pytest

from seismograd.activations import ActivationMonitor, ActivationStats, detect_dead_neurons


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def issues(draw, records=10, **options):
    monitor = ActivationMonitor()
    for _ in range(records):
        monitor.record("layer", draw(), **options)
    return monitor.diagnose().get("layer", [])


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


HEALTHY = {
    "relu": lambda rng: np.maximum(rng.normal(size=(32, 20)), 0),
    "small relu": lambda rng: np.minimum(np.maximum(rng.normal(0, 0.3, size=(32, 20)), 0), 0.999),
    "sparse relu": lambda rng: np.maximum(rng.normal(-2, 1, size=(64, 20)), 0),
    "dropout": lambda rng: rng.normal(size=(32, 20)) * (rng.random((32, 20)) > 0.9),
    "wide": lambda rng: rng.normal(0, 3, size=(32, 20)),
    "tanh": lambda rng: np.tanh(rng.normal(size=(32, 20))),
    "sigmoid": lambda rng: 1 / (1 + np.exp(-rng.normal(0, 2, size=(32, 20)))),
    "uniform": lambda rng: rng.uniform(-1, 1, size=(32, 20)),
    "certain softmax": lambda rng: softmax(rng.normal(0, 50, size=(32, 20))),
    "attention": lambda rng: softmax(rng.normal(0, 50, size=(4, 2, 8, 8))),
    "constant": lambda rng: np.full((32, 20), 7.0),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_layers_are_silent(name, rng):
    assert issues(lambda: HEALTHY[name](rng)) == []


@pytest.mark.parametrize("scale", [1, -1])
def test_a_tanh_stuck_at_its_bounds(rng, scale):
    (text,) = issues(lambda: np.tanh(scale * np.abs(rng.normal(30, 1, size=(32, 20)))))
    assert text.startswith("Saturated: 100%")


def test_a_sigmoid_stuck_at_both_bounds(rng):
    assert issues(lambda: 1 / (1 + np.exp(-rng.normal(0, 100, size=(32, 20)))))[0].startswith("Saturated")


def test_one_value_beyond_the_bounds_shows_that_there_are_none(rng):
    monitor = ActivationMonitor()
    for _ in range(10):
        monitor.record("layer", np.sign(rng.normal(size=(32, 20))))
    monitor.record("layer", np.full((32, 20), 1.5))
    assert monitor.diagnose() == {}


def test_saturation_on_its_limit():
    half = np.array([[1.0, -1.0, 0.5, 0.1]] * 32)
    assert issues(lambda: half) == []
    more = np.array([[1.0, -1.0, 1.0, 0.1]] * 32)
    assert issues(lambda: more)[0].startswith("Saturated: 75%")


def test_dead_units_on_their_limit(rng):
    def units(dead):
        values = rng.random((32, 10)) + 0.5
        values[:, :dead] = 0
        return values

    assert issues(lambda: units(2)) == []
    assert issues(lambda: units(3)) == ["Dead: 30% of the units (3 of 10) fired on none of 320 samples"]


def test_few_samples_prove_nothing():
    assert issues(lambda: np.zeros((31, 8)), records=1) == []
    assert issues(lambda: np.zeros((32, 8)), records=1) != []
    assert issues(lambda: np.zeros(8), records=31) == []
    assert issues(lambda: np.zeros(8), records=32) != []


def test_units_come_back_to_life_and_the_window_forgets():
    monitor = ActivationMonitor(window_size=3)
    dead, alive = np.zeros((32, 4)), np.ones((32, 4)) * 2
    monitor.record("layer", alive)
    for _ in range(2):
        monitor.record("layer", dead)
        assert monitor.diagnose() == {}, "it fired within the window"
    monitor.record("layer", dead)
    assert "layer" in monitor.diagnose()
    monitor.record("layer", alive)
    assert monitor.diagnose() == {}
    assert len(monitor.history["layer"]) == 3


@pytest.mark.parametrize(
    ("shape", "axis", "given"),
    [
        ((32, 8), 1, None),
        ((32, 5, 8), 2, None),
        ((32, 8, 5), 1, 1),
        ((32, 8, 3, 5), 1, None),
        ((32, 8, 2, 3, 5), 1, None),
    ],
)
def test_where_the_units_are(rng, shape, axis, given):
    values = np.maximum(rng.normal(size=shape), 0) + 0.1
    np.moveaxis(values, axis, 0)[:6] = 0
    assert issues(lambda: values, unit_axis=given)[0].startswith("Dead: 75% of the units (6 of 8)")
    assert detect_dead_neurons(values, unit_axis=given) == (6, 0.75)


def test_nan_is_reported_and_kept_out_of_the_statistics():
    values = np.ones((32, 4)) * 3
    values[0, 0] = np.nan
    stats = ActivationStats.of(values)
    assert (stats.mean, stats.max_val, stats.num_nonfinite) == (3.0, 3.0, 1)
    assert issues(lambda: values, records=2) == ["Non-finite: 2 of 256 values are NaN or Inf"]
    assert issues(lambda: np.full((32, 4), np.inf)) == ["Non-finite: 1280 of 1280 values are NaN or Inf"]


def test_another_number_of_units_starts_the_window_again():
    monitor = ActivationMonitor()
    monitor.record("layer", np.zeros((32, 4)))
    monitor.record("layer", np.ones((32, 6)) * 2)
    assert len(monitor.history["layer"]) == 1
    assert monitor.diagnose() == {}


def test_empty_activations():
    monitor = ActivationMonitor()
    monitor.record("layer", np.zeros((0, 4)))
    assert monitor.history == {}
    with pytest.raises(ValueError, match="empty"):
        detect_dead_neurons(np.zeros((0, 4)))
    with pytest.raises(ValueError, match="window_size is 0"):
        ActivationMonitor(window_size=0)


def test_a_unit_that_fires_once_is_alive():
    values = np.zeros((1000, 4))
    values[7, 0] = 1.0
    assert detect_dead_neurons(values) == (3, 0.75)
    assert detect_dead_neurons(np.array([0.0, 1.0])) == (1, 0.5)


def test_ratios():
    stats = ActivationStats.of(np.array([[0.0, 1.0], [-1.0, 0.5]]))
    assert (stats.zero_ratio, stats.saturation_ratio, stats.total_elements, stats.num_samples) == (0.25, 0.5, 4, 2)


def test_torch_tensors_are_taken_as_they_come():
    torch = pytest.importorskip("torch")
    values = torch.zeros(32, 4, dtype=torch.bfloat16, requires_grad=True)
    assert issues(lambda: values)[0].startswith("Dead: 100%")


def test_saturation_is_judged_by_unit(rng):
    """Six of ten values at a bound, in every unit: each of them still answers, and none is stuck."""

    def draw():
        return np.where(rng.random((32, 20)) < 0.6, 1.0, rng.uniform(-0.9, 0.9, (32, 20)))

    assert issues(draw) == []
    stuck = np.ones(20) * (np.arange(20) < 12)
    assert issues(lambda: np.where(stuck > 0, 1.0, draw()))[0].startswith("Saturated: 60% of the units (12 of 20)")
