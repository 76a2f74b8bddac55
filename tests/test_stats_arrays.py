"""GradientStats, clipping, initialisation and readings from plain arrays."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seismograd.stats.arrays import GradientStats, array_reading, check_initialization, clip_gradients

shapes = hnp.array_shapes(min_dims=0, max_dims=3, max_side=5)
tame = hnp.arrays(np.float64, shapes, elements=st.floats(-1e6, 1e6))


@settings(deadline=None)
@given(st.lists(tame, min_size=1, max_size=5))
def test_the_statistics_are_those_of_all_elements_together(gradients):
    stats = GradientStats.from_gradients(gradients)
    flat = np.concatenate([gradient.ravel() for gradient in gradients])
    assert stats.norm == pytest.approx(np.linalg.norm(flat))
    assert stats.mean == pytest.approx(flat.mean(), abs=1e-9)
    assert stats.std == pytest.approx(flat.std(), abs=1e-6, rel=1e-9)
    assert (stats.max_val, stats.num_zeros, stats.total_elements) == (np.abs(flat).max(), np.sum(flat == 0), flat.size)


@settings(deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_no_finite_gradient_overflows_or_vanishes(gradient):
    stats = GradientStats.from_gradients([gradient])
    exact = math.hypot(*gradient.tolist())  # scaled inside, by CPython
    assert stats.norm == pytest.approx(exact, rel=1e-12)
    assert (stats.norm == 0) == (not gradient.any())
    assert math.isfinite(stats.mean)
    assert math.isfinite(stats.std)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.bool_])
def test_narrow_dtypes_are_widened_before_they_are_squared(dtype):
    gradient = np.full(10_000, 1).astype(dtype) * (100 if dtype is not np.bool_ else 1)
    expected = 100 * (100 if dtype is not np.bool_ else 1)
    assert GradientStats.from_gradients([gradient]).norm == pytest.approx(expected)


def test_all_zero_gradients_have_no_smallest_magnitude():
    stats = GradientStats.from_gradients([np.zeros(3), np.zeros((2, 2))])
    assert (stats.norm, stats.max_val, stats.min_val, stats.num_zeros) == (0.0, 0.0, 0.0, 7)


def test_statistics_are_over_the_finite_values_and_the_norm_tells_of_the_others():
    stats = GradientStats.from_gradients([np.array([1.0, np.inf, 3.0]), np.array([-np.inf])])
    assert (stats.mean, stats.std, stats.max_val, stats.min_val) == (2.0, 1.0, 3.0, 1.0)
    assert (stats.num_infs, stats.num_nans, stats.norm) == (2, 0, math.inf)
    assert math.isnan(GradientStats.from_gradients([np.array([1.0, np.nan])]).norm)


def test_nothing_finite_has_no_mean():
    stats = GradientStats.from_gradients([np.array([np.nan])])
    assert math.isnan(stats.mean)
    assert math.isnan(stats.max_val)
    assert stats.is_healthy() == (False, ["NaN gradients: 1"])


@pytest.mark.parametrize("nothing", [[], {}, [None], [np.zeros((0, 4))]])
def test_no_gradients_is_an_error(nothing):
    with pytest.raises(ValueError, match="no gradients"):
        GradientStats.from_gradients(nothing)


def test_missing_gradients_are_left_out():
    assert GradientStats.from_gradients([None, np.array([3.0, 4.0])]).norm == 5.0


def test_complex_gradients_count_both_parts():
    assert GradientStats.from_gradients([np.array([3 + 4j])]).norm == 5.0


@pytest.mark.parametrize(("norm", "word"), [(1000.0, None), (1001.0, "large"), (1e-8, None), (1e-9, "small")])
def test_health_on_its_limits(norm, word):
    healthy, issues = GradientStats.from_gradients([np.array([norm])]).is_healthy()
    assert healthy == (word is None)
    assert word is None or word in issues[0]


def test_a_reading_holds_only_what_was_measured():
    reading, stats = array_reading(3, 0.5, {"w": np.array([3.0, 0.0]), "b": np.array([4.0]), "frozen": None}, 0.1)
    assert reading.step == 3
    assert reading.scalars == {"loss": 0.5, "grad/norm": 5.0, "lr/0": 0.1}
    assert reading.tensors["gradient"].names == ("w", "b")
    assert reading.tensors["gradient"].row("w") == {"norm": 3.0, "max": 3.0, "mean": 1.5, "zeros": 0.5}
    assert stats == GradientStats.from_gradients([np.array([3.0, 0.0]), np.array([4.0])])
    assert array_reading(3, 0.5, [np.ones(1)], 0.1, val_loss=0.7)[0].scalars["val_loss"] == 0.7


@settings(deadline=None)
@given(st.lists(tame, min_size=1, max_size=4), st.floats(1e-3, 1e3))
def test_clipped_gradients_keep_their_direction_and_respect_the_limit(gradients, max_norm):
    clipped, norm = clip_gradients(gradients, max_norm)
    after = math.hypot(*(np.linalg.norm(gradient) for gradient in clipped))
    assert after == pytest.approx(min(norm, max_norm), rel=1e-9)
    for before, now in zip(gradients, clipped, strict=True):
        assert now == pytest.approx(before * (min(1, max_norm / norm) if norm else 1))


def test_clipping_keeps_the_dtype_and_does_not_round_the_factor_to_zero():
    clipped, norm = clip_gradients([np.full(100_000, 60_000, np.float16)], max_norm=1.0)
    assert clipped[0].dtype == np.float16
    assert norm == pytest.approx(60_000 * math.sqrt(100_000), rel=1e-3)
    assert np.all(clipped[0] > 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_gradients_that_are_not_finite_are_not_touched(bad):
    gradient = np.array([bad, 2.0])
    clipped, norm = clip_gradients([gradient])
    assert not math.isfinite(norm)
    np.testing.assert_array_equal(clipped[0], gradient)


def test_a_limit_of_zero_is_refused():
    with pytest.raises(ValueError, match="max_norm is 0"):
        clip_gradients([np.ones(2)], max_norm=0)


def test_the_layout_decides_which_axis_is_the_fan_in():
    weight = np.random.default_rng(0).normal(0, math.sqrt(2 / 10_000), (10_000, 4))
    assert check_initialization([weight])["layers"][0]["expected_std"] == pytest.approx(math.sqrt(2 / 10_000))
    assert check_initialization([weight.T], layout="torch")["all_ok"]
    assert check_initialization([weight], layout="torch")["layers"][0]["status"] == "too_small"
    with pytest.raises(ValueError, match="layout is 'jax'"):
        check_initialization([weight], layout="jax")


def test_biases_pass_and_broken_weights_do_not():
    verdict = check_initialization({"bias": np.zeros(8), "nan": np.full((4, 4), np.nan), "big": 1e3 * np.eye(4)})
    assert [(layer["layer"], layer["status"]) for layer in verdict["layers"]] == [
        ("bias", "ok"),
        ("nan", "nonfinite"),
        ("big", "too_large"),
    ]
    assert not verdict["all_ok"]


def test_a_torch_model_as_torch_makes_it_is_well_initialised():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(100, 2000),
        nn.Linear(2000, 8),
        nn.Conv2d(64, 64, 3, groups=8, dtype=torch.bfloat16),
        nn.ConvTranspose2d(256, 2, 4),
        nn.BatchNorm1d(8),
    )
    verdict = check_initialization(model)
    assert [layer["layer"] for layer in verdict["layers"]] == ["0.weight", "1.weight", "2.weight", "3.weight"]
    assert verdict["all_ok"]
    assert verdict["layers"][0]["expected_std"] is None
    assert verdict["layers"][1]["expected_std"] == pytest.approx(math.sqrt(2 / 2000))
    assert verdict["layers"][2]["expected_std"] == pytest.approx(math.sqrt(2 / (8 * 9)))
    assert verdict["layers"][3]["expected_std"] == pytest.approx(math.sqrt(2 / (256 * 16)))
    with torch.no_grad():
        model[1].weight.mul_(1e-3)
    assert check_initialization(model)["layers"][1]["status"] == "too_small"
    assert check_initialization([model[1].weight])["layers"][0]["expected_std"] == pytest.approx(math.sqrt(2 / 2000))


def test_recurrent_layers_and_attention_are_read_as_torch_lays_them_out():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "lstm": nn.LSTM(3, 64, num_layers=2, bidirectional=True),
            "projected": nn.LSTM(8, 64, proj_size=16),
            "cell": nn.GRUCell(5, 32),
            "attention": nn.MultiheadAttention(32, 4),
            "other": nn.MultiheadAttention(32, 4, kdim=8, vdim=8),
        }
    )
    verdict = check_initialization(model)
    assert verdict["all_ok"]
    expected = {layer["layer"]: layer["expected_std"] for layer in verdict["layers"]}
    fans = {
        "lstm.weight_ih_l0": 3 + 64,
        "lstm.weight_hh_l1_reverse": 128 + 64,
        "projected.weight_hh_l0": 8 + 16,
        "projected.weight_hr_l0": 64,
        "cell.weight_ih": 5 + 32,
        "attention.in_proj_weight": 32,
        "attention.out_proj.weight": 32,
        "other.k_proj_weight": 8,
    }
    assert {name: expected[name] for name in fans} == pytest.approx(
        {name: math.sqrt(2 / n) for name, n in fans.items()}
    )
    with torch.no_grad():
        model["lstm"].weight_hh_l0.mul_(1e-3)
    small = [layer["layer"] for layer in check_initialization(model)["layers"] if layer["status"] == "too_small"]
    assert small == ["lstm.weight_hh_l0"]


def test_a_single_layer_is_a_model_too():
    torch = pytest.importorskip("torch")
    assert [layer["layer"] for layer in check_initialization(torch.nn.Linear(4, 4))["layers"]] == ["weight"]
