import pytest

from seismograd.detectors.data.label_out_of_range import LabelOutOfRange
from seismograd.judge import judge_all
from seismograd.records import Reading


def readings(low, high, count=4, **call):
    told = {
        "name": "binary_cross_entropy_with_logits",
        "reduction": "mean",
        "weighted": False,
        "target_low": low,
        "target_high": high,
    } | call
    return [Reading(step, facts={"loss": {"calls": [told]}}) for step in range(count)]


def raised(lowest, highest, labels, **call):
    told = {
        **{"name": "cross_entropy_loss", "error": "IndexError: Target 4 is out of bounds.", "classes": 4, "bad": 2},
        **{"labels": labels, "samples": [[3], [5]], "target_low": lowest, "target_high": highest, "ignore_index": -100},
    } | call
    return [Reading(7, facts={"loss": {"failed": told}})]


def found(many, **limits):
    return judge_all(many, [LabelOutOfRange(**limits)])


@pytest.mark.parametrize(
    ("low", "high", "advice"),
    [(-1.0, 1.0, "(target + 1) / 2"), (1.0, 2.0, "target - 1"), (0.0, 255.0, "255"), (-0.4, 2.8, "mse_loss")],
)
def test_targets_that_are_no_probabilities(low, high, advice):
    (finding,) = found(readings(low, high))
    assert (finding.severity, finding.step) == ("critical", 2)
    assert advice in finding.recommendations[0]


def test_silent_where_they_may_be_meant():
    assert found(readings(0.0, 1.0)) == []
    assert found(readings(0.0, 1.2)) == []
    assert found(readings(-1.0, 1.0, reduction="none")) == []
    assert found(readings(-1.0, 1.0, weighted=True)) == []
    assert found(readings(-3.0, 3.0, name="mse_loss")) == []


def test_on_its_limit():
    assert found(readings(0.0, 1.31))
    assert found(readings(0.0, 1.2), slack=0.1)
    assert found(readings(0.0, 2.0, 2)) == []
    assert found(readings(0.0, 2.0, 2), looks=2)


def test_the_soft_margin_wants_a_sign():
    assert found(readings(0.0, 1.0, name="soft_margin_loss", target_least=0.0))[0].severity == "warning"
    assert found(readings(-1.0, 1.0, name="soft_margin_loss", target_least=1.0)) == []


@pytest.mark.parametrize(
    ("low", "high", "labels", "advice"),
    [(1, 4, [4], "target - 1"), (-1, 3, [-1], "ignore_index=-1"), (0, 9, [4, 9], "10 outputs")],
)
def test_a_class_that_is_not_there(low, high, labels, advice):
    (finding,) = found(raised(low, high, labels))
    assert (finding.severity, finding.step) == ("critical", 7)
    assert advice in finding.recommendations[0]
    assert finding.evidence["samples"] == [[3], [5]]


def test_a_loss_that_raised_for_another_reason():
    assert found(raised(0, 3, [], bad=0)) == []
    refused = {"name": "binary_cross_entropy", "bad": 0, "low": 0.2, "high": 0.8}
    assert found(raised(-1.0, 2.0, [], **refused))
    assert found(raised(-1.0, 2.0, [], **refused | {"low": -3.0})) == []
