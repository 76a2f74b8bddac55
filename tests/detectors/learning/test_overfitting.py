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


def test_on_its_limit(lab):
    def rise_to(last):  # a tenth of what was gained is 0.095
        return [*np.linspace(1.5, 0.5, 20), *np.linspace(0.5, last, 20), *[last] * 5]

    assert run(lab, rise_to(0.585)) == []
    assert run(lab, rise_to(0.605))
    assert run(lab, TURN[:7]) == []
