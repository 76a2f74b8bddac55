import numpy as np

from seismograd.detectors.learning.loss_oscillation import LossOscillation

WALLS = np.tile([1.0, -1.0], 200)


def test_fires_on_swings_that_stay(lab):
    findings = lab.run(LossOscillation(), lab.scalars(2.0 + 0.8 * WALLS, lr__0=0.3))
    assert findings[0].severity == "warning"
    assert findings[0].step == 192, "the first block is only looked at"
    assert "0.1" in findings[0].recommendations[0]


def test_silent_when_they_die_down_or_are_noise(lab):
    assert lab.run(LossOscillation(), lab.scalars(2.0 + 0.8 * WALLS * np.exp(-np.arange(400) / 50))) == []
    assert lab.run(LossOscillation(), lab.scalars(2.0 + np.random.default_rng(0).normal(0, 0.5, 2000))) == []


def test_silent_on_two_batches_in_turn_while_it_comes_down(lab):
    level = 2.0 * np.exp(-np.arange(400) / 100) + 0.3
    assert lab.run(LossOscillation(), lab.scalars(level * (1 + 0.5 * WALLS))) == []


def test_silent_when_two_tasks_take_turns_and_one_is_learned(lab):
    rng, time = np.random.default_rng(0), np.arange(600)
    hard, easy = 25 * rng.lognormal(0, 0.2, 600), 1.4 * np.exp(-time / 150)
    assert lab.run(LossOscillation(), lab.scalars(np.where(time % 2, hard, easy))) == []


def test_silent_where_every_other_step_is_missing(lab):
    losses = np.tile([9.0, 1.0], 300)
    assert lab.run(LossOscillation(), lab.scalars(losses))
    assert lab.run(LossOscillation(), [r for r in lab.scalars(losses) if r.step % 3 == 0]) == []


def test_on_its_limit(lab):
    assert lab.run(LossOscillation(), lab.scalars(2.0 + 0.095 * WALLS)) == []
    assert lab.run(LossOscillation(), lab.scalars(2.0 + 0.105 * WALLS))
    assert lab.run(LossOscillation(), lab.scalars((2.0 + 0.8 * WALLS)[:192])) == []
