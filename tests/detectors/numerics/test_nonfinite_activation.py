import math

from seismograd.detectors.numerics.nonfinite_activation import NonfiniteActivation
from seismograd.records import Operand, Origin, Reading, Where

LOG = Origin(
    "forward",
    Where("head", op="aten.log", file="train.py", line=42, code="y = torch.log(x)"),
    columns=(4, 16),
    value=-math.inf,
    bad=14,
    size=512,
    index=((3, 17),),
    shape=(16, 32),
    dtype="float32",
    inputs=(Operand("self", (16, 32), "float32", 0.0, 1.0, 512, zeros=14),),
)


def test_fires_and_names_op_line_and_inputs(lab):
    (finding,) = lab.run(NonfiniteActivation(), [Reading(12, {"loss": math.inf}, origin=LOG)])
    assert finding.severity == "critical"
    assert finding.message == (
        "`log` in `head` made -Inf in 14 of 512 values at step 12. log of 0 is -Inf; 14 of 512 inputs are exactly 0."
    )
    assert (finding.where.file, finding.where.line, finding.where.op) == ("train.py", 42, "aten.log")
    assert finding.where.phase == "forward"
    assert finding.evidence["first_bad"] == "sample 3, feature 17 [3, 17] (and 13 more)"


def test_silent_on_other_origins_and_without_one(lab):
    others = [Reading(1, origin=Origin(phase)) for phase in ("input", "loss", "backward", "optimizer", "")]
    assert lab.run(NonfiniteActivation(), [Reading(0, {"loss": math.nan}), *others]) == []


def test_tells_what_it_can_where_only_the_module_is_known(lab):
    (finding,) = lab.run(NonfiniteActivation(), [Reading(3, origin=Origin("forward", Where("head"), value=math.nan))])
    assert finding.message == "`head` returned NaN at step 3. Which op made it is not known."
