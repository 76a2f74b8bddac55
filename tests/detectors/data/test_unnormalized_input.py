import math

import pytest

from seismograd.detectors.data.unnormalized_input import UnnormalizedInput
from seismograd.records import Reading

PIXELS = {"mean": 128.0, "std": 60.0, "low": 0.0, "high": 255.0, "largest": 142.0, "column": 3.0, "middle": 140.0}
FINE = {"mean": 0.0, "std": 1.0, "low": -3.0, "high": 3.0, "largest": 1.2, "column": 0.0, "middle": 1.0}


def readings(values, scales=PIXELS, smallest=100.0, kind="classes", **more):
    made = []
    for step, value in enumerate(values):
        made.append(Reading(step, {"loss": value}))
        loss = {
            "kind": kind, "name": "cross_entropy_loss" if kind == "classes" else "mse_loss", "value": value,
            "alone": True, "weighted": False, "rows": 8, "batch": 8, "shape": [], "classes": 4,
        }  # fmt: skip
        loss |= {"labels": [0, 1, 2, 3, 0, 1, 2, 3]} if kind == "classes" else {"moments": [0.0, 1.0, 0.0, 0.1]}
        inputs = [{"module": "0", "shape": [8, 20], "smallest": smallest} | scales]
        made.append(Reading(step, facts={"data": {"losses": [loss | more], "inputs": inputs, "optimizers": 1}}))
    return made


def test_a_start_far_above_chance_that_stays(lab):
    findings = lab.run(UnnormalizedInput(), readings([30.0] * 25))
    assert [str(finding.severity) for finding in findings[:10]] == ["info"] * 10
    assert findings[-1].severity == "warning"
    assert findings[-1].where.module == "0"
    assert "142" in findings[-1].message
    assert "guessing" in findings[-1].message


def test_only_told_of_where_it_learns(lab):
    findings = lab.run(UnnormalizedInput(), readings([30.0] * 5 + [8.0] * 5 + [1.0] * 200))
    assert findings
    assert {str(finding.severity) for finding in findings} == {"info"}


def test_a_loss_that_stays_at_chance(lab):
    findings = lab.run(UnnormalizedInput(), readings([math.log(4)] * 160))
    assert findings[0].step == 150
    assert findings[0].severity == "warning"
    assert lab.run(UnnormalizedInput(patience=200), readings([math.log(4)] * 160)) == []


def test_an_explosion(lab):
    made = readings([5.0, 50.0, 1e9, math.inf], kind="numbers")
    finding = lab.run(UnnormalizedInput(), made)[0]
    assert (finding.step, str(finding.severity)) == (3, "warning")


@pytest.mark.parametrize("values", [[30.0] * 25, [1.386] * 200, [5.0, 50.0, 1e9, math.inf]])
def test_silent_where_the_scale_is_fine(lab, values):
    assert lab.run(UnnormalizedInput(), readings(values, FINE, smallest=0.5)) == []


def test_one_column_far_above_another(lab):
    values = [math.log(4)] * 160
    assert lab.run(UnnormalizedInput(), readings(values, FINE, smallest=1e-5))
    assert lab.run(UnnormalizedInput(ratio=1e6), readings(values, FINE, smallest=1e-5)) == []


def test_large_inputs_that_do_no_harm(lab):
    assert lab.run(UnnormalizedInput(), readings([1.3 * 0.97**step for step in range(200)])) == []
    assert lab.run(UnnormalizedInput(), readings([30.0] * 25, alone=False)) == []


def test_on_its_limit(lab):
    assert lab.run(UnnormalizedInput(large=143.0), readings([30.0] * 25)) == []
    assert lab.run(UnnormalizedInput(excess=30.0), readings([30.0] * 25)) == []


def test_a_leap_at_the_second_step_and_nothing_learned_after(lab):
    findings = lab.run(UnnormalizedInput(), readings([3.6, 17.9] + [1.4] * 50))
    assert {str(finding.severity) for finding in findings if finding.step < 40} == {"info"}
    assert findings[-1].severity == "warning"
    assert all(
        finding.severity == "info" for finding in lab.run(UnnormalizedInput(), readings([3.6, 17.9] + [1.0] * 50))
    )
    assert lab.run(UnnormalizedInput(), readings([1.4] * 6 + [17.9] + [1.4] * 50)) == []
