import math

from seismograd.detectors.numerics.nonfinite_input import NonfiniteInput
from seismograd.records import Origin, Reading

FACTS = {"argument": "args[0]", "samples": 3, "of_samples": 32}
BATCH = Origin("input", value=math.nan, bad=4, size=512, index=((5, 2),), shape=(32, 16), facts=FACTS)


def test_fires_and_names_the_sample(lab):
    (finding,) = lab.run(NonfiniteInput(), [Reading(12, {"loss": math.nan}, origin=BATCH)])
    assert finding.severity == "critical"
    assert finding.message == (
        "At step 12, 3 of 32 samples of the batch hold NaN; the first is sample 5, feature 2 of args[0]."
    )
    assert finding.evidence["samples"] == 3
    assert finding.evidence["index"] == [[5, 2]]
    assert finding.where.phase == "input"
    assert "isfinite" in finding.recommendations[0]


def test_silent_on_other_origins_and_without_one(lab):
    others = [Reading(1, origin=Origin(phase)) for phase in ("forward", "loss", "backward", "optimizer", "")]
    assert lab.run(NonfiniteInput(), [Reading(0, {"loss": math.nan}), *others]) == []


def test_one_bad_value_is_enough(lab):
    one = Origin("input", value=math.inf, bad=1, size=512, facts={"argument": "args[0]"})
    (finding,) = lab.run(NonfiniteInput(), [Reading(0, origin=one)])
    assert finding.message == "At step 0, args[0] of the batch holds Inf in 1 of 512 values."
