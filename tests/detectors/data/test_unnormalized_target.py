import math

from seismograd.detectors.data.unnormalized_target import UnnormalizedTarget
from seismograd.records import Reading


def readings(outputs, mean=2e5, std=5e4, losses=None, **more):
    """The mean of the outputs at each step; their deviation is 0.1."""
    made = []
    for step, output in enumerate(outputs):
        value = (mean - output) ** 2 + std**2 if losses is None else losses[step]
        made.append(Reading(step, {"loss": value}))
        loss = {
            "kind": "numbers", "name": "mse_loss", "value": value, "alone": True, "weighted": False, "rows": 32,
            "batch": 32, "shape": [1], "moments": [mean, std, output, 0.1],
        }  # fmt: skip
        made.append(Reading(step, facts={"data": {"losses": [loss | more], "optimizers": 1}}))
    return made


def test_an_output_that_has_far_to_go(lab):
    finding, *_ = lab.run(UnnormalizedTarget(), readings([0.01 * step for step in range(40)]))
    assert finding.step == 25
    assert finding.severity == "warning"
    assert "2e+05" in finding.message
    assert finding.evidence["way"] < 1e-5


def test_silent_where_it_gets_there(lab):
    assert lab.run(UnnormalizedTarget(), readings([5.0 * step for step in range(60)], mean=200.0, std=50.0)) == []
    assert lab.run(UnnormalizedTarget(), readings([0.05 * step for step in range(60)], mean=22.0, std=9.0)) == []


def test_silent_where_outputs_are_as_large(lab):
    assert lab.run(UnnormalizedTarget(), readings([2e5] * 60)) == []


def test_silent_where_there_is_nothing_to_learn(lab):
    """Targets around zero, however wide: an output of zero is right if nothing can be known."""
    assert lab.run(UnnormalizedTarget(), readings([0.0] * 100, mean=0.0, std=1000.0)) == []


def test_an_explosion(lab):
    made = readings([0.0, 1e9, 1e15, 1e22], losses=[4e10, 1e18, 1e30, math.inf])
    finding = lab.run(UnnormalizedTarget(), made)[0]
    assert (finding.step, str(finding.severity)) == (3, "warning")


def test_other_terms_of_the_loss_are_left_alone(lab):
    assert lab.run(UnnormalizedTarget(), readings([0.01 * step for step in range(40)], alone=False)) == []


def test_on_its_limit(lab):
    made = readings([0.01 * step for step in range(40)])
    assert lab.run(UnnormalizedTarget(large=1e6), made) == []
    assert lab.run(UnnormalizedTarget(patience=40), made) == []
    assert lab.run(UnnormalizedTarget(far=1e9), made) == []
