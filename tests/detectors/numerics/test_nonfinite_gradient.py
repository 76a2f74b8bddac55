import math
from dataclasses import replace

import numpy as np

from seismograd.detectors.numerics.nonfinite_gradient import NonfiniteGradient
from seismograd.records import Operand, Origin, Reading, TensorStats, Where


def bad_reading(marks=()):
    names = ("a.weight", "b.weight", "c.weight")
    return Reading(
        3,
        {"loss": 1.0, "grad/norm": math.nan},
        {
            "gradient": TensorStats(names, {"norm": np.array([1.0, math.nan, math.inf])}),
            "nonfinite": TensorStats(
                names, {"nan": np.array([0, 5, 0]), "inf": np.array([0, 0, 2]), "size": np.full(3, 9)}
            ),
        },
        marks=frozenset(marks),
    )


def test_fires_and_names_the_parameters(lab):
    (finding,) = lab.run(NonfiniteGradient(), [bad_reading()])
    assert finding.severity == "critical"
    assert (finding.where.parameter, finding.where.module, finding.where.phase) == ("b.weight", "b", "backward")
    assert {**finding.evidence} | {"parameters": 2, "of": 3, "nan": 5, "inf": 2} == finding.evidence
    assert "2 of 3" in finding.message


def test_fires_on_the_norm_alone(lab):
    (finding,) = lab.run(NonfiniteGradient(), lab.scalars([1.0], grad__norm=[math.inf]))
    assert finding.evidence["norm"] == math.inf


def test_silent_when_the_scaler_skips(lab):
    assert lab.run(NonfiniteGradient(), [bad_reading(["amp-skipped"])]) == []


def test_a_sum_that_overflows_is_no_bad_gradient(lab):
    table = TensorStats(("a", "b"), {"norm": np.array([1e200, 1e200])})
    assert lab.run(NonfiniteGradient(), [Reading(0, {"grad/norm": math.inf}, {"gradient": table})]) == []


SQRT = Origin(
    "backward",
    Where("enc", op="aten.div", file="train.py", line=42, code="h = torch.sqrt(h)"),
    "aten.sqrt",
    value=math.inf,
    bad=14,
    size=512,
    inputs=(Operand("self", (512,), "float32", 0.0, 3.1, 512, zeros=14),),
)


def test_an_origin_in_backward_gives_place_sentence_and_advice(lab):
    (finding,) = lab.run(NonfiniteGradient(), [replace(bad_reading(), origin=SQRT)])
    assert finding.message == (
        "The gradients of 2 of 3 parameters are not finite at step 3, while the loss was finite (1)."
        " sqrt has an infinite derivative at 0; 14 of 512 inputs are exactly 0."
    )
    assert (finding.where.file, finding.where.line, finding.where.op) == ("train.py", 42, "aten.sqrt")
    assert {**finding.evidence} | {"parameters": 2, "nan": 5, "inf": 2, "op": "aten.div"} == finding.evidence
    assert "torch.sqrt(x + 1e-8)" in finding.recommendations[0]


def test_an_origin_in_backward_is_a_fault_even_if_the_scaler_skips(lab):
    assert lab.run(NonfiniteGradient(), [replace(bad_reading(["amp-skipped"]), origin=SQRT)])
    elsewhere = replace(bad_reading(["amp-skipped"]), origin=Origin("forward"))
    assert lab.run(NonfiniteGradient(), [elsewhere]) == []


def test_an_origin_is_told_where_no_norm_was_read(lab):
    (finding,) = lab.run(NonfiniteGradient(), [Reading(3, origin=SQRT)])
    assert finding.message.startswith("Backward made Inf at step 3, in backward. sqrt has")


def test_an_origin_elsewhere_is_its_cause(lab):
    (finding,) = lab.run(NonfiniteGradient(), [replace(bad_reading(), origin=Origin("input"))])
    assert finding.evidence["because"] == "nonfinite-input"
    assert "2 of 3" in finding.message


def test_an_origin_that_was_not_found_says_why(lab):
    (finding,) = lab.run(NonfiniteGradient(), [replace(bad_reading(), origin=Origin("", note="out of memory"))])
    assert finding.recommendations[-1] == finding.evidence["note"] == "Out of memory."
    assert "because" not in finding.evidence
