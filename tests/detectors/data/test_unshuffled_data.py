import numpy as np
import pytest

from seismograd.detectors.data.unshuffled_data import UnshuffledData
from seismograd.records import Reading


def readings(batches, **more):
    made = []
    for step, labels in enumerate(batches):
        loss = {
            "kind": "classes", "name": "cross_entropy_loss", "value": 1.0, "alone": True, "weighted": False,
            "rows": len(labels), "batch": len(labels), "shape": [], "classes": 10, "labels": list(labels),
        }  # fmt: skip
        made.append(Reading(step, facts={"data": {"losses": [loss | more], "optimizers": 1}}))
    return made


def in_order(classes=10, each=64, batch=16, epochs=2):
    labels = np.repeat(np.arange(classes), each).tolist() * epochs
    return [labels[at : at + batch] for at in range(0, len(labels), batch)]


def numbers(means, std=0.05, losses=None):
    made = []
    for step, mean in enumerate(means):
        loss = {
            "kind": "numbers", "name": "mse_loss", "value": 1.0 if losses is None else losses[step], "alone": True,
            "weighted": False, "rows": 16, "batch": 16, "shape": [1], "moments": [mean, std, 0.0, 0.1],
        }  # fmt: skip
        made.append(Reading(step, facts={"data": {"losses": [loss], "optimizers": 1}}))
    return made


def test_one_class_after_the_other(lab):
    finding, *_ = lab.run(UnshuffledData(), readings(in_order()))
    assert finding.step < 20
    assert finding.severity == "warning"
    assert "one class only" in finding.message


def test_two_classes(lab):
    finding, *_ = lab.run(UnshuffledData(), readings(in_order(2, 320)))
    assert 20 <= finding.step < 26


def test_one_batch_a_class(lab):
    assert lab.run(UnshuffledData(), readings(in_order(10, 16, 16, 5)))


def test_many_classes(lab):
    assert lab.run(UnshuffledData(), readings(in_order(100, 24, 32, 1)))


def test_steps_that_are_read_now_and_then(lab):
    made = readings(in_order(10, 160, 16, 3))
    assert lab.run(UnshuffledData(), made[::7])


rng = np.random.default_rng(0)
MIXED = [rng.integers(0, 10, 32) for _ in range(300)]
PAIRS = [np.repeat(rng.permutation(20)[:4], 8) for _ in range(300)]
PURE = [[int(rng.integers(0, 10))] * 16 for _ in range(300)]
TASKS = [rng.integers(2 * (at // 60), 2 * (at // 60) + 2, 32) for at in range(300)]
WHOLE = [np.repeat([0, 1], 20)] * 100
ONE = [[0] * 16] * 100
HALVES = [[1] * 16 + [0] * 16] * 300
REAL_FAKE_REAL = [[1] * 10 + [0] * 10 + [1] * 10] * 300
FRAUD = [(rng.random(32) < 0.04).astype(int) for _ in range(300)]


@pytest.mark.parametrize("batches", [MIXED, PAIRS, PURE, TASKS, WHOLE, ONE, HALVES, REAL_FAKE_REAL, FRAUD])
def test_silent(lab, batches):
    assert lab.run(UnshuffledData(), readings([[int(label) for label in labels] for labels in batches])) == []


def test_silent_where_labels_are_of_places(lab):
    assert lab.run(UnshuffledData(), readings(in_order(), batch=2)) == []
    assert lab.run(UnshuffledData(), readings(in_order(), shape=[12])) == []


def test_silent_where_samples_are_weighed(lab):
    assert lab.run(UnshuffledData(), readings(in_order(), alone=False)) == []


def test_targets_that_rise(lab):
    means = np.tile(np.linspace(-1, 1, 20), 8)
    findings = lab.run(UnshuffledData(), numbers(means))
    assert {str(finding.severity) for finding in findings} == {"info"}
    worse = lab.run(UnshuffledData(), numbers(means, losses=[5.0 if at % 20 == 0 else 0.5 for at in range(160)]))
    assert worse[-1].severity == "warning"
    assert lab.run(UnshuffledData(), numbers(rng.permutation(means))) == []
    assert lab.run(UnshuffledData(), numbers(np.sin(np.arange(160) / 5))) == []


def test_limits(lab):
    made = readings(in_order())
    assert lab.run(UnshuffledData(batches=300), made) == []
    assert lab.run(UnshuffledData(labels=10_000), made) == []
    assert lab.run(UnshuffledData(within=0.0001), readings(in_order(10, 65, 16))) == []


def test_a_discriminator_and_its_generator_take_turns(lab):
    """Half real, half fake in one batch, all to pass for real in the other: by design, and of one step."""
    discriminator, generator = readings([[1] * 32 + [0] * 32] * 40), readings([[1] * 32] * 40)
    assert not lab.run(UnshuffledData(), [one for pair in zip(discriminator, generator, strict=True) for one in pair])
