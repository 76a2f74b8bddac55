import pytest

from seismograd.detectors.learning.saturated_units import SaturatedUnits
from seismograd.records import Reading, Severity

USUAL = {"name": "act", "op": "tanh", "after": "fc1", "last": False, "gate": False, "units": 64, "stuck": 0}


def looks(flat, losses=(2.0,), *, samples=320, count=10, since=0, **more):
    for step in range(count):
        yield Reading(step, {"loss": losses[min(step, len(losses) - 1)]})
        layer = USUAL | more | {"flat": flat if step >= since else 0}
        layer["stuck"] = layer["stuck"] if step >= since else 0
        facts = {"activations": {"window": 256, "layers": [layer]}, "outputs": {"samples": samples}}
        yield Reading(step, facts=facts)


FALLING = [2.0 / (step + 1) for step in range(40)]


def test_from_the_start(lab):
    finding, *_ = lab.run(SaturatedUnits(), looks(60, FALLING))
    assert (finding.severity, finding.step, finding.evidence["from_the_start"]) == (Severity.WARNING, 4, True)
    assert finding.message.startswith("60 of the 64 units behind `fc1` (tanh) are saturated")
    assert "nn.init.xavier_uniform_(fc1.weight)" in " ".join(finding.recommendations)


def test_units_that_became_certain_have_learned_something(lab):
    assert lab.run(SaturatedUnits(), looks(60, FALLING, since=10, count=30)) == []


def test_later_where_nothing_was_learned_or_they_are_stuck(lab):
    assert lab.run(SaturatedUnits(), looks(60, since=10, count=30))[0].evidence["since"] == 10
    finding, *_ = lab.run(SaturatedUnits(), looks(60, FALLING, since=10, count=30, stuck=60))
    assert "stuck at one bound" in finding.message


@pytest.mark.parametrize("more", [{"last": True}, {"gate": True, "stuck": 64}, {"units": 4}, {"samples": 4}])
def test_where_it_is_meant_or_little_is_known(lab, more):
    flat = 4 if "units" in more else 64
    assert lab.run(SaturatedUnits(), looks(flat, **more)) == []


def test_gates_that_were_never_soft(lab):
    assert lab.run(SaturatedUnits(), looks(60, FALLING, gate=True))[0].step == 4
    assert lab.run(SaturatedUnits(), looks(60, gate=True, stuck=30)) == []
    assert lab.run(SaturatedUnits(), looks(60, gate=True, since=10, count=30)) == []


def test_on_its_limit(lab):
    assert lab.run(SaturatedUnits(), looks(47)) == []
    assert lab.run(SaturatedUnits(), looks(48))
    assert lab.run(SaturatedUnits(share=0.9), looks(48)) == []
    assert lab.run(SaturatedUnits(), looks(64, count=4)) == []
    assert lab.run(SaturatedUnits(looks=4), looks(64, count=4))
