import pytest

from seismograd.detectors.learning.dead_units import DeadUnits
from seismograd.records import Reading, Severity

USUAL = {"name": "act", "op": "relu", "after": "fc1", "last": False, "gate": False, "blocks": None, "samples": 320}


def look(step, *layers, samples=320):
    facts = {
        "activations": {"window": 256, "layers": [USUAL | layer for layer in layers]},
        "outputs": {"samples": samples},
    }
    return Reading(step, facts=facts)


def silent(blocks=True, units=64, **more):
    return {"units": units, "fired": 0, "dead": units, "never": units, "still": 160, "blocks": blocks} | more


def partly(dead, units=64, **more):
    return {"units": units, "fired": units - dead, "dead": dead, "never": dead, "still": 0} | more


def looks(layer, count=10, **more):
    return [look(step, layer, **more) for step in range(count)]


def test_a_layer_through_which_nothing_passes(lab):
    finding, *_ = lab.run(DeadUnits(), looks(silent()))
    assert (finding.severity, finding.step) == (Severity.CRITICAL, 4)
    assert finding.message.startswith("All 64 units behind `fc1` (relu) are dead and fired on none of the last 160")
    assert "from the first step on" in finding.message
    assert finding.where.module == "fc1"
    assert "bias" in finding.recommendations[0]


def test_a_branch_is_a_warning_and_a_gate_nothing(lab):
    assert lab.run(DeadUnits(), looks(silent(blocks=False)))[0].severity is Severity.WARNING
    assert lab.run(DeadUnits(), looks(silent(blocks=False, units=4))) == []
    assert lab.run(DeadUnits(), looks(silent(gate=True))) == []
    assert lab.run(DeadUnits(), looks(silent(blocks=None))) == [], "it is not known yet"


def test_most_units(lab):
    finding, *_ = lab.run(DeadUnits(), looks(partly(56)))
    assert (finding.severity, finding.evidence["share"]) == (Severity.WARNING, 0.875)


@pytest.mark.parametrize("dead", [0, 20, 32, 47])
def test_some_at_rest_are_normal(lab, dead):
    assert lab.run(DeadUnits(), looks(partly(dead))) == []


def test_on_its_limit(lab):
    assert lab.run(DeadUnits(), looks(partly(47)))[:1] == []
    assert lab.run(DeadUnits(), looks(partly(48)))
    assert lab.run(DeadUnits(share=0.9), looks(partly(48))) == []
    assert lab.run(DeadUnits(share=0.9), looks(partly(58)))
    assert lab.run(DeadUnits(), looks(partly(12, units=16))) == [], "so many may be chance in a small layer"
    assert lab.run(DeadUnits(), looks(partly(16, units=16)))
    assert lab.run(DeadUnits(), looks(silent(), count=4)) == []
    assert lab.run(DeadUnits(looks=4), looks(silent(), count=4))


def test_few_samples_prove_nothing(lab):
    assert lab.run(DeadUnits(), looks(partly(56), samples=4)) == []
    assert lab.run(DeadUnits(), looks(silent(still=20, dead=0))) == []
    assert lab.run(DeadUnits(), looks(silent(), samples=4)), "none fires: the few samples are all there are"


def test_the_outputs_of_the_model_may_be_zero(lab):
    assert lab.run(DeadUnits(), looks(partly(56, last=True))) == []


def test_when_they_died_and_at_which_rate(lab):
    alive = [look(step, partly(2, never=2)) for step in range(6)]
    rate = Reading(6, {"lr/0": 3.0})
    dead = [look(step, silent(never=1)) for step in range(6, 16)]
    finding, *_ = lab.run(DeadUnits(), [*alive, rate, *dead])
    assert finding.step == 10
    assert "since about step 6, at lr 3" in finding.message
    assert (finding.evidence["since"], finding.evidence["lr"], finding.evidence["from_the_start"]) == (6, 3.0, False)
    assert "try 0.3" in finding.recommendations[0]


def test_units_that_come_back_are_not_dead(lab):
    assert lab.run(DeadUnits(), [look(step, silent() if step % 4 else partly(1)) for step in range(40)]) == []


def test_several_layers_are_one_finding(lab):
    readings = [look(step, silent(), silent(name="act2", after="fc2")) for step in range(6)]
    finding, *_ = lab.run(DeadUnits(), readings)
    assert "So are those behind `fc2`" in finding.message
    assert [name for name, *_ in finding.evidence["layers"]] == ["act", "act2"]
