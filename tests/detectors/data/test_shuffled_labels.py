import math

import numpy as np
import pytest

from seismograd.detectors.data.shuffled_labels import ShuffledLabels
from seismograd.records import Reading, TensorStats


def readings(count=400, *, level=1.0, strength=0.004, samples=2048, ratio=1e-3, optimizers=1, **more):
    """Four classes at `level` times chance; `level` may be a function of the step."""
    rng = np.random.default_rng(0)
    made = []
    for step in range(count):
        share = level(step) if callable(level) else level
        value = math.log(4) * share + 0.01 * rng.normal()
        tensors = {"update": TensorStats(("weight",), {"ratio": [ratio]})} if step % 10 == 0 else {}
        made.append(Reading(step, {"loss": value, "lr/0": 1e-3}, tensors))
        loss = {
            "kind": "classes", "name": "cross_entropy_loss", "value": value, "alone": True, "weighted": False,
            "rows": 32, "batch": 32, "shape": [], "classes": 4, "labels": rng.integers(0, 4, 32).tolist(),
            "guesses": rng.integers(0, 4, 32).tolist(),
        }  # fmt: skip
        facts = {"losses": [loss | more], "optimizers": optimizers}
        if step % 16 == 15:
            facts["relation"] = {"samples": min(samples, 32 * step), "classes": 4, "strength": strength}
        made.append(Reading(step, facts={"data": facts}))
    return made


def test_chance_for_ever(lab):
    finding, *_ = lab.run(ShuffledLabels(), readings())
    assert 250 <= finding.step <= 300
    assert finding.severity == "warning"
    assert "nothing to do with" in finding.message
    assert len(finding.recommendations) == 2


def test_learned_by_heart(lab):
    made = []
    for at, reading in enumerate(readings(level=lambda step: 1.0 - 0.001 * step)):
        made.append(reading)
        if at % 80 == 79:
            made.append(Reading(reading.step, {"val_loss": 1.39 + 0.0002 * reading.step}))
    finding, *_ = lab.run(ShuffledLabels(), made)
    assert finding.evidence["val_loss"] > finding.evidence["entropy"]
    for at, reading in enumerate(made):
        if "val_loss" in reading.scalars:
            made[at] = Reading(reading.step, {"val_loss": 1.39 - 0.001 * reading.step})
    assert lab.run(ShuffledLabels(), made) == []


@pytest.mark.parametrize(
    "change",
    [
        {"strength": 0.05},  # a feature differs between classes
        {"samples": 200},
        {"level": 0.95},
        {"level": 1.3},
        {"level": lambda step: 1.0 if step < 200 else 0.8},
        {"ratio": 1e-6},  # nothing moves: another fault
        {"guesses": [0] * 32},
        {"optimizers": 2},
        {"alone": False},
        {"weighted": True},
    ],
)
def test_silent(lab, change):
    assert lab.run(ShuffledLabels(), readings(**change)) == []


def test_on_its_limit(lab):
    assert lab.run(ShuffledLabels(patience=400), readings()) == []
    assert lab.run(ShuffledLabels(samples=4000), readings()) == []


def test_a_short_run_that_is_over(lab):
    over = Reading(160, facts={"data": {"over": True}})
    assert lab.run(ShuffledLabels(), readings(160)) == []
    finding, *_ = lab.run(ShuffledLabels(), [*readings(160), over])
    assert finding.severity == "warning"
    soon = Reading(110, facts={"data": {"over": True}})
    assert lab.run(ShuffledLabels(), [*readings(110), soon]) == []
    assert lab.run(ShuffledLabels(), [*readings(160, samples=900), over]) == []
    assert lab.run(ShuffledLabels(), [*readings(160, strength=0.05), over]) == []
    assert lab.run(ShuffledLabels(), [*readings(160, level=lambda step: 1.0 if step < 100 else 0.8), over]) == []
