import math

import numpy as np

from seismograd.detectors.numerics.nonfinite_gradient import NonfiniteGradient
from seismograd.records import Reading, TensorStats


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
