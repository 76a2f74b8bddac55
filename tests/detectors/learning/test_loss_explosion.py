import numpy as np
import pytest

from seismograd.detectors.learning.loss_explosion import LossExplosion


def noise(count, scale=0.02, seed=0):
    return np.random.default_rng(seed).normal(0, scale, count)


def test_fires_when_the_loss_multiplies(lab):
    losses = [*(2.0 + noise(50)), *(2.0 * 1.5 ** np.arange(20))]
    findings = lab.run(LossExplosion(), lab.scalars(losses, lr__0=0.1))
    assert findings[0].severity == "critical"
    assert findings[0].step < 65
    assert "0.01" in findings[0].recommendations[0]


@pytest.mark.parametrize("seed", range(3))
def test_fires_when_it_grows_slowly_and_does_not_slow_down(lab, seed):
    """A run that diverges over thousands of steps: no reading is far from the one before it."""
    fell = 2.0 * np.exp(-np.arange(1500) / 300) + 0.3
    losses = [*fell, *(0.3 * np.exp(np.arange(4000) / 300))] * np.random.default_rng(seed).lognormal(0, 0.1, 5500)
    (first, *_) = lab.run(LossExplosion(), lab.scalars(losses))
    assert losses[first.step] < 1e4
    assert "doubles" in first.message


@pytest.mark.parametrize(("power", "pace"), [(1, 0.1), (2, 1e-4), (3, 1e-8)])
def test_silent_on_what_grows_with_a_power_of_the_step(lab, power, pace):
    """Value functions: the loss grows with the square of the returns, far beyond where it began."""
    values = (1.0 + pace * np.arange(6000.0) ** power) * np.random.default_rng(0).lognormal(0, 0.3, 6000)
    assert max(values) > 1000.0
    assert lab.run(LossExplosion(), lab.scalars(values)) == []


def test_a_leap_is_no_doubling(lab):
    leapt = lab.run(LossExplosion(), lab.scalars([*(2.0 + noise(200)), *[1e5] * 60]))
    assert leapt
    assert not [each for each in leapt if "doubles" in each.message]


def test_fires_from_the_first_step_on(lab):
    assert lab.run(LossExplosion(), lab.scalars(2.0 * 5.0 ** np.arange(8)))[0].step <= 5


def test_fires_when_it_jumps_up_and_stays(lab):
    assert lab.run(LossExplosion(), lab.scalars([2.0] * 50 + [100.0] * 60))
    assert lab.run(LossExplosion(), lab.scalars([2.0] * 50 + [1e4] * 10))[0].step == 54


def test_fires_below_all_bounds(lab):
    findings = lab.run(LossExplosion(), lab.scalars(-1e-3 * np.arange(2048.0) ** 3))
    assert "below all bounds" in findings[0].message


def test_silent_on_likelihoods_spikes_and_slow_growth(lab):
    assert lab.run(LossExplosion(), lab.scalars(100.0 - 300.0 * np.log1p(np.arange(4096)))) == []
    assert lab.run(LossExplosion(), lab.scalars([2.0] * 50 + [100.0] * 3 + [2.0] * 50)) == []
    values = np.linspace(0.01, 10.0, 3000) * np.random.default_rng(0).lognormal(0, 0.5, 3000)
    assert lab.run(LossExplosion(), lab.scalars(values)) == [], "a value function grows with its returns"


@pytest.mark.parametrize("every", [1, 5])
def test_fires_below_all_bounds_wherever_it_is_read(lab, every):
    """NLL of raw scores: it grows with the square of the step and never stops."""
    losses = 0.4 - 0.3 * np.arange(600.0) ** 2.2 * np.random.default_rng(0).lognormal(0, 0.1, 600)
    made = [reading for reading in lab.scalars(losses) if reading.step % every == 0]
    findings = lab.run(LossExplosion(), made)
    assert findings[0].step < 500
    assert findings[0].evidence["limit"] > findings[0].evidence["loss"]


def test_how_fast_it_falls_decides(lab):
    steps = np.arange(2000.0)
    assert lab.run(LossExplosion(), lab.scalars(-(steps**1.4))) == []
    assert lab.run(LossExplosion(), lab.scalars(-(steps**1.6)))
    assert lab.run(LossExplosion(), lab.scalars(-0.5 * steps)) == [], "returns that grow steadily"


def test_a_leap_in_the_first_steps_is_held_against_the_first_loss(lab):
    losses = [127.0, 8e18, 7e5, 176.0, *np.linspace(400, 3000, 16), *(3000.0 + noise(150, 300.0))]
    (first, *_) = lab.run(LossExplosion(), lab.scalars(losses))
    assert first.evidence["start"] == 127.0
    back = [127.0, 8e18, 7e5, 176.0, *np.linspace(400, 3000, 16), *np.geomspace(3000.0, 10.0, 40), *[10.0] * 100]
    assert lab.run(LossExplosion(), lab.scalars(back)) == []
    grown = [0.1, *np.linspace(0.1, 5.0, 20), *(5.0 + noise(100))]
    assert lab.run(LossExplosion(), lab.scalars(grown)) == []


def test_single_good_batches_after_a_leap_are_no_return(lab):
    ruined = 3000.0 + noise(100, 300.0)
    ruined[::8] = 0.0
    (first, *_) = lab.run(LossExplosion(), lab.scalars([0.69, 4e4, *ruined]))
    assert 50 <= first.step <= 52
    half = ruined.copy()
    half[::2] = 0.0
    assert lab.run(LossExplosion(), lab.scalars([0.69, 4e4, *half])) == []


def test_a_leap_that_came_back_just_before_it_is_judged(lab):
    late = [0.69, 4e4, *np.geomspace(4e4, 8.0, 42), *(0.5 + noise(150, 0.1))]
    assert lab.run(LossExplosion(), lab.scalars(late)) == []


def test_on_its_limit(lab):
    just_below = [2.0] * 50 + [2.0 + 1e3 * 2.0] * 10
    just_above = [2.0] * 50 + [2.0 + 1.001e3 * 2.0] * 10
    assert lab.run(LossExplosion(), lab.scalars(just_below)) == []
    assert lab.run(LossExplosion(), lab.scalars(just_above))
