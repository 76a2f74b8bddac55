import numpy as np

from seismograd.detectors.numerics.nonfinite_parameter import NonfiniteParameter
from seismograd.records import Reading, TensorStats


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
