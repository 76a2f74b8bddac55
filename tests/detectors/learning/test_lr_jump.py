import math

import numpy as np
import pytest

from seismograd.detectors.learning.lr_jump import LrJump
from seismograd.records import Reading

STEPS = np.arange(400)


def test_fires_on_a_jump_that_hurts_in_any_group(lab):
    losses = [1.0] * 200 + [5.0] * 100
    findings = lab.run(LrJump(), lab.scalars(losses, lr__0=1e-3, lr__1=[1e-3] * 200 + [1e-1] * 100))
    assert findings[0].step == 200
    assert findings[0].evidence["group"] == "1"


def test_fires_on_a_negative_rate(lab):
    findings = lab.run(LrJump(), lab.scalars([1.0] * 150, lr__0=[0.1 * (1 - at / 100) for at in range(150)]))
    assert findings[0].step == 101
    assert findings[0].severity == "critical"


def test_fires_when_it_falls_to_zero_and_stays(lab):
    rates = [1e-3 * max(0.0, 1 - at / 100) for at in range(400)]
    findings = lab.run(LrJump(), lab.scalars([1.0] * 400, lr__0=rates))
    assert findings[0].step == 149
    assert findings[0].severity == "critical"


def test_fires_on_a_decay_stepped_with_every_batch(lab):
    losses = 2.0 - 0.5 * np.minimum(STEPS, 50) / 50
    findings = lab.run(LrJump(), lab.scalars(losses, lr__0=0.1 * 0.9**STEPS))
    assert findings[0].severity == "warning"


def test_names_the_line_that_steps_the_scheduler(lab):
    turn = {"places": {"scheduler": {"file": "train.py", "line": 31, "code": "scheduler.step()"}}}
    readings = lab.scalars([1.0] * 150, lr__0=[0.1 * (1 - at / 100) for at in range(150)])
    readings.insert(3, Reading(3, facts={"order": {"turns": [turn]}}))
    (first, *_) = lab.run(LrJump(), readings)
    assert (first.where.file, first.where.line) == ("train.py", 31)


def cosine(steps, total):
    return 0.5e-3 * (1 + np.cos(np.pi * steps / total))


@pytest.mark.parametrize(
    "rates",
    [
        cosine(STEPS, 400),
        cosine(STEPS % 100, 100),
        np.minimum(1.0, STEPS / 100) * 1e-3,
        0.1 ** (STEPS // 100) * 1e-1,
        np.where(STEPS < 50, 1e-4, 1e-3),
        0.1 ** np.minimum(STEPS // 40, 8) * 1e-1,
        np.full(400, 1e-3),
    ],
    ids=["cosine", "restarts", "warm-up", "steps", "warm-up in one stage", "on plateau", "constant"],
)
def test_silent_on_schedules(lab, rates):
    losses = 2.0 * np.exp(-STEPS / 60) + 0.5 + np.random.default_rng(0).normal(0, 0.02, 400)
    assert lab.run(LrJump(), lab.scalars(losses, lr__0=rates)) == []


def test_on_its_limit(lab):
    losses = [1.0] * 200 + [5.0] * 100
    assert lab.run(LrJump(), lab.scalars(losses, lr__0=[1e-3] * 200 + [4.9e-3] * 100)) == []
    assert lab.run(LrJump(), lab.scalars(losses, lr__0=[1e-3] * 200 + [5.1e-3] * 100))
    assert lab.run(LrJump(), lab.scalars([1.0] * 60, lr__0=[1e-3] * 11 + [0.0] * 49)) == []
    assert not math.isnan(
        lab.run(LrJump(), lab.scalars([1.0] * 61, lr__0=[1e-3] * 11 + [0.0] * 50))[0].evidence["limit"]
    )
