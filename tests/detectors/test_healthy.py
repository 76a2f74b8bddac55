"""Healthy runs that look odd: on none of them does any detector say more than info."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seismograd.detectors import DEFAULT
from seismograd.judge import Judge
from seismograd.records import Reading

N = 1200
T = np.arange(N)
HEALTHY = {}


def healthy(function):
    HEALTHY[function.__name__] = function
    return function


def falling(rng, floor=0.5, noise=0.02, scale=2.0, time=150.0):
    return floor + scale * np.exp(-T / time) + rng.normal(0, noise, N)


def norms(rng, base=1.0, spread=0.3):
    return base * rng.lognormal(0, spread, N)


@healthy
def constant_rate(rng):
    return {"loss": falling(rng), "grad/norm": norms(rng), "lr/0": 1e-3}


@healthy
def warm_up_from_zero(rng):
    loss = np.where(T < 200, 2.5 + rng.normal(0, 0.02, N), 0.5 + 2 * np.exp(-(T - 200) / 150) + rng.normal(0, 0.02, N))
    return {"loss": loss, "grad/norm": norms(rng), "lr/0": np.minimum(1, T / 400) * 1e-3}


@healthy
def cosine_to_zero(rng):
    return {"loss": falling(rng), "grad/norm": norms(rng), "lr/0": 0.05 * (1 + np.cos(np.pi * T / N))}


@healthy
def warm_restarts(rng):
    cycle = T % 200
    bump = np.where(T >= 200, 0.4 * np.exp(-cycle / 30) * (1 - np.exp(-cycle / 3)), 0)
    return {"loss": falling(rng) + bump, "grad/norm": norms(rng), "lr/0": 0.05 * (1 + np.cos(np.pi * cycle / 200))}


@healthy
def one_cycle(rng):
    rate = np.where(T < 360, 4e-4 + 1e-2 * T / 360, 1e-2 * (1 + np.cos(np.pi * (T - 360) / (N - 360))) / 2 + 4e-8)
    return {"loss": falling(rng), "grad/norm": norms(rng), "lr/0": rate}


@healthy
def steps_by_ten(rng):
    return {"loss": falling(rng) * np.where(T < 600, 1, 0.7), "grad/norm": norms(rng), "lr/0": 0.1 * 0.1 ** (T // 300)}


@healthy
def reduced_on_plateau(rng):
    return {"loss": falling(rng, time=40), "grad/norm": norms(rng), "lr/0": 0.1 * 0.1 ** np.clip((T - 200) // 60, 0, 7)}


@healthy
def two_rates_one_zero(rng):
    return {"loss": falling(rng), "grad/norm": norms(rng), "lr/0": 0.0, "lr/1": 1e-3}


@healthy
def policy_gradient(rng):
    return {"loss": rng.normal(0, 0.1, N), "grad/norm": norms(rng, spread=1.0), "lr/0": 3e-4}


@healthy
def heavy_tails_with_batch_size_one(rng):
    loss = falling(rng, noise=0) * rng.lognormal(0, 1.0, N)
    return {"loss": loss, "grad/norm": norms(rng, spread=1.2), "lr/0": 1e-2}


@healthy
def student_noise(rng):
    return {
        "loss": falling(rng, noise=0) + 0.05 * np.abs(rng.standard_t(3, N)),
        "grad/norm": norms(rng, spread=0.8),
        "lr/0": 1e-3,
    }


@healthy
def density_below_zero(rng):
    return {"loss": 3.0 - 2.0 * np.log1p(T / 5) + rng.normal(0, 0.2, N), "grad/norm": norms(rng, 5.0), "lr/0": 1e-3}


@healthy
def large_likelihood(rng):
    return {"loss": 7000 - 2500 * np.log1p(T) + rng.normal(0, 100, N), "grad/norm": norms(rng, 1e4), "lr/0": 1e-3}


@healthy
def label_smoothing_floor(rng):
    return {"loss": falling(rng, floor=0.85, noise=0.005, time=60), "grad/norm": norms(rng, 0.2), "lr/0": 1e-3}


@healthy
def converged_to_nothing(rng):
    loss = np.maximum(2.3 * np.exp(-T / 30), 1e-7) * 10.0 ** rng.uniform(-1.5, 1.5, N) ** 1
    return {"loss": loss, "grad/norm": loss * rng.lognormal(0, 0.5, N), "lr/0": 1e-3}


@healthy
def exactly_zero_in_the_end(rng):
    loss = np.where(T < 300, 2 * np.exp(-T / 20), 0.0)
    return {"loss": loss, "grad/norm": loss, "lr/0": 1e-2}


@healthy
def lbfgs(rng):
    loss = np.maximum(5.0 * 10.0 ** (-T / 6.0), 1e-10)[:80]
    return {"loss": loss, "grad/norm": np.sqrt(loss), "lr/0": 1.0}


@healthy
def one_outlier_batch(rng):
    loss, norm = falling(rng), norms(rng)
    loss[700] *= 8
    norm[700] *= 40
    return {"loss": loss, "grad/norm": norm, "lr/0": 1e-3}


@healthy
def large_at_first(rng):
    loss = 0.5 + 1e4 * np.exp(-T / 3) + 2 * np.exp(-T / 100) + rng.normal(0, 0.02, N)
    return {"loss": loss, "grad/norm": norms(rng) * (1 + 1e4 * np.exp(-T / 4)), "lr/0": 1e-3}


@healthy
def gradient_rises_slowly(rng):
    return {"loss": falling(rng), "grad/norm": norms(rng) * (1 + T / 30), "lr/0": 1e-3}


@healthy
def gradient_dies_down(rng):
    return {
        "loss": falling(rng, floor=0.1, noise=1e-4, time=50),
        "grad/norm": norms(rng) * 10.0 ** (-T / 200),
        "lr/0": 1e-2,
    }


@healthy
def leaves_a_saddle(rng):
    gone = 1 / (1 + np.exp((T - 150) / 8))
    return {
        "loss": 0.2 + 2 * gone + rng.normal(0, 0.01, N),
        "grad/norm": np.minimum(1e-3 * 1.06**T, 1.0) + 1e-4,
        "lr/0": 0.1,
    }


@healthy
def value_function_grows(rng):
    return {"loss": (0.01 + T / 100) * rng.lognormal(0, 0.7, N), "grad/norm": norms(rng) * (1 + T / 50), "lr/0": 1e-4}


@healthy
def annealed_penalty(rng):
    return {"loss": falling(rng) + 2.0 * np.minimum(1, T / 600), "grad/norm": norms(rng), "lr/0": 1e-3}


@healthy
def two_batches_in_turn(rng):
    return {"loss": falling(rng, noise=0.001) * np.where(T % 2, 1.2, 0.8), "grad/norm": norms(rng), "lr/0": 1e-2}


@healthy
def epochs_of_ten_batches(rng):
    return {
        "loss": falling(rng, noise=0) * np.resize(rng.lognormal(0, 0.3, 10), N),
        "grad/norm": norms(rng),
        "lr/0": 1e-2,
    }


@healthy
def fine_tuning_with_little_progress(rng):
    return {"loss": 1.2 - 0.1 * T / N + rng.normal(0, 0.08, N), "grad/norm": norms(rng), "lr/0": 1e-6}


@healthy
def language_model(rng):
    return {"loss": 3.0 + 7.5 * (1 + T / 10) ** -0.5 + rng.normal(0, 0.05, N), "grad/norm": norms(rng), "lr/0": 3e-4}


@healthy
def scaler_settles_and_grows(rng):
    scale = np.where(T < 5, 65536.0 / 2.0 ** np.minimum(T, 5), 2048.0)
    skipped = (T < 5) | (T % 400 == 399)
    return {
        "loss": falling(rng),
        "grad/norm": np.where(skipped, math.inf, norms(rng)),
        "lr/0": 1e-3,
        "amp/scale": scale,
        "skipped": skipped,
    }


@healthy
def validation_levels_off(rng):
    val = np.where(T % 40 == 0, 0.9 + 1.5 * np.exp(-T / 150) + 2e-5 * T + rng.normal(0, 0.02, N), math.nan)
    return {"loss": falling(rng, floor=0.3), "grad/norm": norms(rng), "lr/0": 1e-3, "val_loss": val}


@healthy
def dropout_keeps_training_above_validation(rng):
    val = np.where(T % 50 == 0, falling(rng, floor=0.3), math.nan)
    return {"loss": falling(rng, floor=0.6), "grad/norm": norms(rng), "lr/0": 1e-3, "val_loss": val}


@healthy
def adversaries(rng):
    return {"loss": 1.386 + rng.normal(0, 0.01, N), "grad/norm": norms(rng), "lr/0": 2e-4, "series": np.zeros(N)}


def readings(series):
    length = min(len(values) for values in series.values() if np.ndim(values))
    columns = {
        name: np.broadcast_to(values, length) if not np.ndim(values) else values for name, values in series.items()
    }
    skipped, number = columns.pop("skipped", None), columns.pop("series", None)
    tail = "" if number is None else "/0"
    for step in range(length):
        scalars = {
            name if name.startswith("lr/") else name + tail: float(values[step])
            for name, values in columns.items()
            if not (name == "val_loss" and math.isnan(values[step]))
        }
        marks = frozenset(["amp-skipped"]) if skipped is not None and skipped[step] else frozenset()
        yield Reading(step, scalars, marks=marks, series=None if number is None else 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", HEALTHY)
def test_all_are_silent(name, seed):
    judge = Judge(DEFAULT)
    for reading in readings(HEALTHY[name](np.random.default_rng(seed))):
        judge.observe(reading)
    loud = [(finding.id, finding.step, finding.message) for finding in judge.findings if finding.severity != "info"]
    assert loud == []
    quiet = {"one_outlier_batch", "heavy_tails_with_batch_size_one", "student_noise", "policy_gradient"}
    if name not in quiet:
        assert judge.findings == []


@pytest.mark.parametrize("seed", range(3))
def test_tables_of_a_healthy_run(lab, seed):
    rng = np.random.default_rng(seed)
    judge = Judge(DEFAULT)
    for step in range(0, 2000, 10):
        size = rng.lognormal(0, 0.3, 6)
        judge.observe(
            lab.reading(
                step,
                6,
                loss=0.5 + 2 * math.exp(-step / 300) + rng.normal(0, 0.02),
                gradient_norm=0.1 * size,
                update_gradient=0.1 * size,
                update_ratio=np.maximum(1e-3, 1.0 / (step + 2)) * size,
                update_norm=np.maximum(1e-3, 1.0 / (step + 2)) * 5 * size,
                update_decay=5e-5,
            )
        )
    assert judge.findings == []
