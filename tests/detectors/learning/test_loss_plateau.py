import math

import numpy as np
import pytest

from seismograd.detectors.learning.loss_plateau import LossPlateau


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
    assert lab.run(LossPlateau(), lab.scalars(5.0 * (1 + 0.019 * swing)))
