import math
from dataclasses import replace

import pytest

from seismograd.detectors.numerics.nonfinite_loss import NonfiniteLoss
from seismograd.records import Operand, Origin, Reading, Where


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_fires_at_once_each_time(lab, bad):
    first, second = lab.run(NonfiniteLoss(), lab.scalars([2.0, 1.9, bad, bad]))
    assert (first.step, second.step) == (2, 3)
    assert first.severity == "critical"
    assert first.evidence["last_finite"] == 1.9
    assert any("learning rate" in text for text in first.recommendations)


def test_says_that_it_grew_before(lab):
    (finding,) = lab.run(NonfiniteLoss(), lab.scalars([2.0, 80.0, math.nan]))
    assert "growing" in finding.recommendations[0]


def test_silent_on_finite_losses(lab):
    assert lab.run(NonfiniteLoss(), lab.scalars([2.0, -3.0, 0.0])) == []


def test_the_largest_float_is_finite(lab):
    assert lab.run(NonfiniteLoss(), lab.scalars([1.7e308, -1.7e308])) == []


DIV = Origin(
    "loss",
    Where(op="aten.div", file="train.py", line=7, code="loss = total / count"),
    value=math.nan,
    bad=1,
    size=1,
    inputs=(Operand("self", (), "float32", 0.0, 0.0, 1, 1), Operand("other", (), "float32", 0.0, 0.0, 1, 1)),
)


def test_an_origin_in_the_loss_gives_place_sentence_and_advice(lab):
    before, after = lab.scalars([2.0, math.nan])
    (finding,) = lab.run(NonfiniteLoss(), [before, replace(after, origin=DIV)])
    assert finding.message == ("The loss is NaN at step 1; it was 2 at step 0. 0 / 0 is NaN; the divisor is 0.")
    assert (finding.where.file, finding.where.line, finding.where.phase) == ("train.py", 7, "loss")
    assert finding.evidence["last_finite"] == 2.0
    assert "mask" in finding.recommendations[0]
    assert "checkpoint" in finding.recommendations[-1]


def test_an_origin_in_the_loss_is_told_where_the_loss_was_not_read(lab):
    (finding,) = lab.run(NonfiniteLoss(), [Reading(4, origin=DIV)])
    assert finding.message.startswith("NaN was made in the loss at step 4. 0 / 0 is NaN")
    assert "loss" not in finding.evidence


def test_an_origin_elsewhere_is_its_cause(lab):
    (reading,) = lab.scalars([math.nan])
    (finding,) = lab.run(NonfiniteLoss(), [replace(reading, origin=Origin("forward"))])
    assert finding.evidence["because"] == "nonfinite-activation"


def test_silent_on_a_finite_loss_whose_step_has_another_origin(lab):
    (reading,) = lab.scalars([1.0])
    assert lab.run(NonfiniteLoss(), [replace(reading, origin=Origin("backward")), Reading(1)]) == []


@pytest.mark.parametrize("hides", [True, False])
def test_says_that_a_trainer_does_not_log_it(lab, hides):
    bad = Reading(
        1, {"loss": math.nan}, facts={"surroundings": {"framework": "transformers", "hides_bad_losses": hides}}
    )
    (finding,) = lab.run(NonfiniteLoss(), [Reading(0, {"loss": 2.0}), bad])
    assert (finding.evidence.get("hidden_by") == "logging_nan_inf_filter") is hides
    assert any("logging_nan_inf_filter=False" in text for text in finding.recommendations) is hides
