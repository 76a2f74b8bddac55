import math

import numpy as np
import pytest

from seismograd.detectors.learning.loss_plateau import LossPlateau
from seismograd.records import Reading


@pytest.mark.parametrize("level", [2.3, -2.3, 1e-3])
def test_fires_when_nothing_moves(lab, level):
    findings = lab.run(LossPlateau(), lab.scalars([level] * 200, lr__0=1e-3, grad__norm=1.0))
    assert findings[0].step == 99
    assert findings[0].severity == "critical"


def test_knows_what_guessing_gives(lab):
    losses = math.log(10) + np.random.default_rng(0).normal(0, 0.02, 400)
    findings = lab.run(LossPlateau(), lab.scalars(losses))
    assert findings[0].evidence["chance_of_classes"] == 10


@pytest.mark.parametrize(
    "losses",
    [
        [0.0] * 200,
        np.linspace(5, -5, 200),
        3 * np.exp(-np.arange(600) / 60) + 0.5 + np.random.default_rng(0).normal(0, 0.02, 600),
        2.3 - 1e-5 * np.arange(1000),
        np.random.default_rng(0).normal(0, 1, 1000),
        2.0 + np.random.default_rng(0).normal(0, 0.1, 1000),
    ],
    ids=["zero", "through zero", "converged", "slow but steady", "policy gradient", "noisy"],
)
def test_silent(lab, losses):
    assert lab.run(LossPlateau(), lab.scalars(losses)) == []


def test_silent_in_warm_up_at_the_end_of_a_decay_and_at_a_saddle(lab):
    assert lab.run(LossPlateau(), lab.scalars([2.3] * 300, lr__0=np.linspace(0, 1e-3, 300))) == []
    assert lab.run(LossPlateau(), lab.scalars([2.3] * 300, lr__0=[1.0] * 60 + [1e-3] * 240)) == []
    assert lab.run(LossPlateau(), lab.scalars([2.3] * 300, grad__norm=1e-6 * 1.05 ** np.arange(300))) == []


def test_on_its_limit(lab):
    assert lab.run(LossPlateau(), lab.scalars([2.3] * 99)) == []
    assert len(lab.run(LossPlateau(), lab.scalars([2.3] * 100))) == 1
    swing = np.tile([1.0, -1.0], 200)
    assert lab.run(LossPlateau(), lab.scalars(5.0 * (1 + 0.0205 * swing))) == []
    assert lab.run(LossPlateau(), lab.scalars(5.0 * (1 + 0.019 * swing)))[0].severity == "warning"


def sampled(lab, losses, every=10, moves=True, gradient=0.1, **measures):
    """Readings of a model with three layers and ten outputs, its tables on every tenth."""
    size = np.array([1280.0, 4096.0, 640.0])
    std = np.array([0.5774 / np.sqrt(20), 0.5774 / 8, 0.5774 / 8])
    usual = {
        "parameter_size": size,
        "parameter_std": std,
        "parameter_gain": std * np.sqrt([20.0, 64.0, 64.0]),
        "update_ratio": 1e-3 if moves else 0.0,
        "gradient_norm": gradient,
    } | measures
    for step, loss in enumerate(losses):
        norm = 5.0 + 1e-4 * step * moves
        reading = lab.reading(step, 3, loss=loss, parameter_norm=norm, **usual)
        yield reading if step % every == 0 else type(reading)(step, reading.scalars)


def noisy(level, count, noise, seed=0):
    return level * (1 + np.random.default_rng(seed).normal(0, noise, count))


def test_fires_at_what_guessing_among_its_own_outputs_gives_whatever_the_noise(lab):
    (first, *_) = lab.run(LossPlateau(), sampled(lab, noisy(math.log(10), 400, 0.06)))
    assert first.severity == "critical"
    assert first.evidence["chance_of_classes"] == 10
    assert first.step == 249
    assert lab.run(LossPlateau(), sampled(lab, noisy(math.log(10), 249, 0.06))) == []
    assert lab.run(LossPlateau(), sampled(lab, noisy(math.log(8), 400, 0.06))) == [], "it has ten outputs"


def test_fires_on_weights_that_do_not_change(lab):
    (first, *_) = lab.run(LossPlateau(), sampled(lab, noisy(1.7, 200, 0.06), moves=False))
    assert first.severity == "critical"
    assert first.evidence["reason"] == "weights"
    assert lab.run(LossPlateau(), sampled(lab, noisy(1.7, 200, 0.06))) == []


def test_an_update_that_was_seen_to_move_them_decides(lab):
    """A norm can stay the same by chance; and what an update did is read one step later."""
    made = []
    for reading in sampled(lab, noisy(1.7, 300, 0.06), moves=False):
        tables = dict(reading.tensors)
        tables.pop("update", None)
        if reading.step % 10 == 1:
            tables["update"] = lab.reading(reading.step, 3).tensors["update"]
        made.append(type(reading)(reading.step, reading.scalars, tables))
    assert lab.run(LossPlateau(), made) == []


def test_silent_at_a_minimum(lab):
    """Loaded at its optimum and trained on: nothing moves, and no gradient is left."""
    assert lab.run(LossPlateau(), sampled(lab, [0.985] * 300, moves=False, gradient=1e-6)) == []
    assert lab.run(LossPlateau(), sampled(lab, [0.985] * 300, gradient=1e-6)) == []
    trained = {"parameter_gain": np.array([0.9, 0.71, 0.8]), "parameter_std": np.array([0.2, 0.089, 0.1])}
    assert lab.run(LossPlateau(), sampled(lab, noisy(0.985, 300, 0.01), **trained)) == []


def test_silent_when_a_weak_signal_was_learned(lab):
    time = np.arange(800)
    assert lab.run(LossPlateau(), sampled(lab, 0.985 + 0.05 * np.exp(-time / 30))) == []
    clicks = 0.667 + 0.023 * np.exp(-time / 60) + np.random.default_rng(0).normal(0, 0.009, 800)
    assert lab.run(LossPlateau(), sampled(lab, clicks)) == []


def test_a_slow_fall_below_what_guessing_gives_is_progress(lab):
    time = np.arange(400)
    slow = math.log(10) * (1 + np.random.default_rng(0).normal(0, 0.008, 400)) - 8e-5 * time
    assert lab.run(LossPlateau(), sampled(lab, slow)) == []
    down_to_it = math.log(10) * (1.012 - 2e-5 * time + np.random.default_rng(0).normal(0, 0.008, 400))
    assert lab.run(LossPlateau(), sampled(lab, down_to_it))[0].evidence["reason"] == "guess"


def test_silent_on_a_loss_that_is_divided_by_itself(lab):
    assert lab.run(LossPlateau(), sampled(lab, [1.0] * 400)) == []


@pytest.mark.parametrize("every", [2, 5])
def test_gaps_between_readings_count_as_steps(lab, every):
    made = [reading for reading in sampled(lab, noisy(math.log(10), 1000, 0.06)) if reading.step % every == 0]
    findings = lab.run(LossPlateau(), made)
    assert 249 <= findings[0].step < 600
    assert findings[0].evidence["steps"] <= findings[0].step + 1


def known(kind):
    loss = {"kind": kind, "name": "loss", "shape": [], "value": 1.0, "weighted": False, "alone": True, "rows": 8}
    loss |= {"batch": 8, "classes": 10, "labels": [0, 1]}
    return Reading(0, facts={"data": {"losses": [loss]}})


def test_numbers_are_not_guessed(lab):
    losses = noisy(math.log(10), 400, 0.06)
    assert lab.run(LossPlateau(), [known("numbers"), *sampled(lab, losses)]) == []
    assert lab.run(LossPlateau(), [known("classes"), *sampled(lab, losses)])
