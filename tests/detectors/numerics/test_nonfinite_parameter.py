import math
from dataclasses import replace

import numpy as np

from seismograd.detectors.numerics.nonfinite_parameter import NonfiniteParameter
from seismograd.records import Origin, Reading, TensorStats, Where


def reading(nan, inf, step=5):
    table = TensorStats(
        ("a.weight", "b.weight"), {"nan": np.array(nan), "inf": np.array(inf), "size": np.array([4, 4])}
    )
    return Reading(step, {}, {"nonfinite_parameter": table})


def test_fires_and_names_the_first(lab):
    (finding,) = lab.run(NonfiniteParameter(), [reading([0, 3], [0, 1])])
    assert finding.severity == "critical"
    assert finding.where.parameter == "b.weight"
    assert (finding.evidence["nan"], finding.evidence["inf"]) == (3, 1)


def test_at_step_zero_it_points_to_the_checkpoint(lab):
    (finding,) = lab.run(NonfiniteParameter(), [reading([1, 0], [0, 0], step=0)])
    assert "checkpoint" in finding.recommendations[0]


def test_silent_without_the_table_and_on_zero_counts(lab):
    assert lab.run(NonfiniteParameter(), [reading([0, 0], [0, 0]), *lab.scalars([1.0])]) == []


UPDATE = Origin(
    "optimizer",
    Where("b", "b.weight"),
    value=math.nan,
    facts={"step": 4, "optimizer": "Adam", "lr": math.inf, "parameter": "b.weight", "made_by": "lr not finite"},
)


def test_the_update_that_made_it_so_is_named(lab):
    (finding,) = lab.run(NonfiniteParameter(), [replace(reading([0, 3], [0, 1]), origin=UPDATE)])
    assert finding.message == (
        "1 of 1 parameters are not finite at step 5: 3 NaN and 1 Inf values, in `b.weight`."
        " The update of step 4 (Adam, lr Inf) made `b.weight` NaN: the learning rate was Inf."
    )
    assert (finding.where.parameter, finding.where.phase) == ("b.weight", "optimizer")
    assert {**finding.evidence} | {"made_by": "lr not finite", "nan": 3, "step": 4} == finding.evidence
    assert "schedule" in finding.recommendations[0]


def test_the_update_is_told_where_no_table_was_read(lab):
    (finding,) = lab.run(NonfiniteParameter(), [Reading(5, origin=UPDATE)])
    assert finding.message.startswith("Parameters are not finite at step 5. The update of step 4")


def test_an_origin_elsewhere_is_its_cause(lab):
    (finding,) = lab.run(NonfiniteParameter(), [replace(reading([0, 3], [0, 1]), origin=Origin("backward"))])
    assert finding.evidence["because"] == "nonfinite-gradient"
