import math

import numpy as np

from seismograd.detectors.learning.overfitting import Overfitting


def run(lab, vals, train=None):
    """A validation every tenth step, the training loss falling unless given."""
    steps = 10 * len(vals)
    losses = 2.0 * np.exp(-np.arange(steps) / 100) if train is None else train
    sparse = [vals[step // 10] if step % 10 == 0 else None for step in range(steps)]
    return lab.run(Overfitting(), lab.scalars(losses, val_loss=sparse))


TURN = [abs(at - 12) / 12 + 0.5 for at in range(40)]


def test_fires_after_the_turn(lab):
    findings = run(lab, TURN)
    assert findings[0].severity == "warning"
    assert 170 <= findings[0].step <= 200
    assert findings[0].evidence["best_step"] == 120


def test_silent_when_validation_levels_off(lab):
    rng = np.random.default_rng(0)
    vals = [math.exp(-at / 10) + 0.5 + rng.normal(0, 0.02) for at in range(80)]
    assert run(lab, vals) == []


def test_silent_when_training_rises_too(lab):
    train = np.abs(np.arange(400) - 120) / 120 + 0.2
    assert run(lab, TURN, train) == []


def test_a_steady_rise_is_seen_through_the_noise(lab):
    vals = [3.0, 3.1, 3.0, 2.6, 2.5, 3.0, 2.7, 3.25, 3.05, 3.1, 3.5, 3.2, 3.8, 3.5, 3.85, 3.65]
    assert run(lab, vals, np.linspace(4.4, 1.2, 160))
    for seed in range(30):
        level = 3.0 + np.exp(-np.arange(40) / 5) + np.random.default_rng(seed).normal(0, 0.15, 40)
        assert run(lab, level, np.linspace(4.4, 1.2, 400)) == [], "noise alone"


def test_silent_on_a_turn_that_is_small_beside_what_was_gained(lab):
    """Validation begins after the first epoch, when most is gained: 0.21, then 0.052 and up to 0.062."""
    vals = [0.21, 0.088, 0.066, 0.058, 0.055, 0.054, *np.linspace(0.052, 0.062, 14)]
    assert run(lab, vals, 1.4 * np.exp(-np.arange(200) / 50)) == []


def test_on_its_limit(lab):
    def rise_to(last):  # a tenth of what was gained is 0.095
        return [*np.linspace(1.5, 0.5, 20), *np.linspace(0.5, last, 20), *[last] * 5]

    assert run(lab, rise_to(0.585)) == []
    assert run(lab, rise_to(0.605))
    assert run(lab, TURN[:7]) == []
