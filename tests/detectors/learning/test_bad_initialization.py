import numpy as np
import pytest

from seismograd.detectors.learning.bad_initialization import BadInitialization
from seismograd.records import Reading


def later(lab, losses):
    return lab.scalars(losses)


def test_fires_on_weights_far_too_large(lab):
    (finding,) = lab.run(BadInitialization(), [lab.reading(0, loss=300.0, parameter_gain=16.0)])
    assert finding.severity == "warning"
    assert finding.evidence["gain"] == 16.0


def test_scaled_at_run_time_they_have_no_effect(lab):
    assert lab.run(BadInitialization(), [lab.reading(0, loss=0.7, parameter_gain=16.0)]) == []


def test_fires_on_weights_far_too_small_that_do_not_learn(lab):
    first = lab.reading(0, loss=2.3, parameter_gain=1e-3)
    assert lab.run(BadInitialization(), [first, *later(lab, [2.3] * 60)])[0].evidence["gain"] == 1e-3
    assert lab.run(BadInitialization(), [first, *later(lab, np.linspace(2.3, 1.0, 60))]) == []


def test_fires_on_units_that_start_alike(lab):
    alike = lab.reading(0, parameter_std=0.0, parameter_gain=0.0)
    (finding,) = lab.run(BadInitialization(), [alike])
    assert "stay alike" in finding.message


def test_fires_on_all_zero_without_gradient_only(lab):
    zeros = {"parameter_norm": 0.0, "parameter_std": 0.0, "parameter_gain": 0.0}
    assert lab.run(BadInitialization(), [lab.reading(0, gradient_norm=0.0, **zeros)])
    assert lab.run(BadInitialization(), [lab.reading(0, gradient_norm=0.1, **zeros)]) == []


def test_silent_on_usual_gains_and_zero_branches(lab):
    for gain in (0.58, 1.0, 1.41, 0.2, 3.0):
        assert lab.run(BadInitialization(), [lab.reading(0, parameter_gain=gain), *later(lab, [1.0] * 60)]) == []
    branch = lab.reading(
        0, parameter_norm=[5, 0, 5, 0], parameter_std=[0.07, 0, 0.07, 0], parameter_gain=[0.6, 0, 0.6, 0]
    )
    assert lab.run(BadInitialization(), [branch, *later(lab, [1.0] * 60)]) == []


def test_one_odd_layer_of_two_does_not_decide(lab):
    scaled = lab.reading(0, 2, loss=1e9, parameter_gain=[0.58, 5600.0])
    assert lab.run(BadInitialization(), [scaled, *later(lab, [1e9] * 60)]) == []
    assert lab.run(BadInitialization(), [lab.reading(0, 3, loss=1e9, parameter_gain=[8.0, 16.0, 16.0])])


def test_trained_weights_are_not_judged(lab):
    assert (
        lab.run(BadInitialization(), [*later(lab, [1.0] * 20), lab.reading(21, loss=300.0, parameter_gain=16.0)]) == []
    )


def test_on_its_limit(lab):
    assert lab.run(BadInitialization(), [lab.reading(0, 3, loss=300.0, parameter_gain=10.0)]) == []
    assert lab.run(BadInitialization(), [lab.reading(0, 3, loss=300.0, parameter_gain=10.1)])


def test_two_large_matrices_have_twenty_steps_to_get_over_it(lab):
    first = lab.reading(0, 2, loss=3e7, parameter_gain=20.0)
    assert lab.run(BadInitialization(), [first, *later(lab, np.geomspace(3e7, 1e5, 30))]) == []
    (finding,) = lab.run(BadInitialization(), [first, *later(lab, np.geomspace(3e7, 1e7, 30))])
    assert finding.evidence["loss"] == 3e7
    assert lab.run(BadInitialization(), [first, *later(lab, [np.nan])])


def fact(step, value, largest=1.0, name="cross_entropy_loss"):
    loss = {"kind": "classes", "name": name, "shape": [], "value": value, "weighted": False, "alone": True}
    loss |= {"rows": 32, "batch": 32, "classes": 5, "labels": [0, 1, 2, 3, 4]}
    return Reading(step, facts={"data": {"losses": [loss], "inputs": [{"largest": largest}]}})


@pytest.mark.parametrize(
    ("gain", "losses", "largest", "fires"),
    [
        (8.0, (300.0, 200.0), 1.0, True),
        (8.0, (300.0, 2.0), 1.0, False),  # it has got over it
        (8.0, (12.0, 12.0), 1.0, False),
        (8.0, (300.0, 200.0), 100.0, False),  # the inputs' fault
        (0.58, (300.0, 200.0), 1.0, False),
    ],
)
def test_somewhat_large_weights_and_a_loss_far_above_chance(lab, gain, losses, largest, fires):
    start, now = losses
    made = [lab.reading(0, 3, loss=start, parameter_gain=gain)]
    made += [fact(step, start if step < 3 else now, largest) for step in range(30)]
    assert bool(lab.run(BadInitialization(), made)) == fires


def units(step, alike, **more):
    layer = {"name": "act", "op": "sigmoid", "after": "fc", "units": 16, "looks": step + 1, "last": False, "flat": 0}
    return Reading(step, facts={"activations": {"layers": [{**layer, "alike": alike, **more}]}})


def test_units_that_stay_alike(lab):
    (finding,) = lab.run(BadInitialization(), [units(step, True) for step in range(20)])
    assert finding.step == 7
    assert finding.where.module == "fc"
    assert lab.run(BadInitialization(), [units(step, step < 5) for step in range(20)]) == []
    assert lab.run(BadInitialization(), [units(step, True, last=True) for step in range(20)]) == []
    assert lab.run(BadInitialization(), [units(step, True, flat=16) for step in range(20)]) == []
    assert lab.run(BadInitialization(looks=30), [units(step, True) for step in range(20)]) == []
