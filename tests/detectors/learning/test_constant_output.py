import math

import pytest

from seismograd.detectors.learning.constant_output import ConstantOutput
from seismograd.records import Reading, Severity


def looks(spreads, *, inputs=1.0, singles=()):
    for step, spread in enumerate(spreads):
        model = {"name": "Net", "rows": 32, "spread": spread, "size": 1.0, "inputs": inputs}
        yield Reading(step, facts={"outputs": {"models": [model], "samples": 320, "singles": list(singles)}})


def test_from_the_start(lab):
    finding, *_ = lab.run(ConstantOutput(), looks([0.0] * 10))
    assert (finding.severity, finding.step) == (Severity.CRITICAL, 7)
    assert finding.message == (
        "`Net` gives the same output for all 32 samples of a batch, to the last bit, from the first step on,"
        " although the inputs differ."
    )


def test_a_collapse(lab):
    finding, *_ = lab.run(ConstantOutput(), looks([0.5] * 20 + [2e-7] * 10))
    assert (finding.step, finding.evidence["since"]) == (27, 20)
    assert "to within 2e-07 of its size, since step 20" in finding.message


@pytest.mark.parametrize(
    "spreads",
    [
        [0.0] * 7 + [0.1] * 20,
        [1e-6 * 1.5**step for step in range(30)],
        [0.0, 0.5] * 20,
        [1e-3] * 40,
        [math.nan] * 40,
    ],
    ids=["a head at zero", "it grows", "now and then", "little", "nan"],
)
def test_silent(lab, spreads):
    assert lab.run(ConstantOutput(), looks(spreads)) == []


def test_the_same_input_gives_the_same_output(lab):
    assert lab.run(ConstantOutput(), looks([0.0] * 40, inputs=0.0)) == []


def test_on_its_limit(lab):
    assert lab.run(ConstantOutput(), looks([1e-5] * 8))
    assert lab.run(ConstantOutput(), looks([1.1e-5] * 8)) == []
    assert lab.run(ConstantOutput(spread=1e-3), looks([1e-4] * 8))
    assert lab.run(ConstantOutput(), looks([0.0] * 7)) == []
    assert lab.run(ConstantOutput(looks=7), looks([0.0] * 7))


def test_a_softmax_over_one_element(lab):
    single = {"module": "head", "op": "aten.softmax", "shape": [32, 1]}
    finding, *_ = lab.run(ConstantOutput(), looks([0.5] * 5, singles=[single]))
    assert (finding.step, finding.where.module) == (2, "head")
    assert finding.message.startswith("The softmax in `head` runs over an axis with a single element (shape (32, 1))")
    loss = {"module": None, "op": "aten.log_softmax", "shape": [32, 1]}
    assert "log_softmax runs" in lab.run(ConstantOutput(), looks([0.5] * 5, singles=[loss]))[0].message
