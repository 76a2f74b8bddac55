import pytest

from seismograd.detectors.loop.loss_input_mismatch import LossInputMismatch
from seismograd.judge import judge_all
from seismograd.records import Reading

LOGITS = {"name": "nll_loss_nd", "low": -2.0, "high": 3.0, "sum_low": -1.0, "sum_high": 4.0, "log_sum": 2.0}


def readings(count=5, **call):
    told = {"name": "cross_entropy_loss", "makers": ["Addmm"], "classes": 10, "shape": [8, 10]} | call
    return [Reading(step, facts={"loss": {"calls": [told]}}) for step in range(count)]


def raised(**call):
    told = {"error": "IndexError: ...", "shape": [8, 4], "target_shape": [8], "target_dtype": "int64", **call}
    return Reading(0, facts={"loss": {"failed": told}})


def found(*many, **limits):
    return judge_all(many, [LossInputMismatch(**limits)])


def test_nll_without_the_logarithm():
    (finding,) = found(*readings(**LOGITS))
    assert (finding.severity, finding.step) == ("critical", 2)
    (finding,) = found(*readings(**LOGITS | {"low": 0.0, "high": 0.9}))
    assert finding.severity == "warning"
    assert "probabilities" in finding.message


def test_silent_on_log_probabilities():
    assert found(*readings(**LOGITS | {"high": 0.0, "log_sum": 1e-6})) == []
    assert found(*readings(**LOGITS | {"high": -0.1, "log_sum": 2.0})) == []
    assert found(*readings(name="nll_loss_nd", makers=["LogSoftmax", "Addmm"])) == []


def test_on_its_limit():
    assert found(*readings(**LOGITS | {"high": 0.019})) == []
    assert found(*readings(**LOGITS | {"high": 0.019}), above=0.01)
    assert found(*readings(2, **LOGITS)) == []
    assert found(*readings(2, **LOGITS), looks=2)


@pytest.mark.parametrize("made", ["Sigmoid", "Tanh", "Relu"])
def test_an_activation_where_logits_belong(made):
    assert found(*readings(makers=[made, "Addmm"]))
    assert found(*readings(name="nll_loss_nd", makers=["LogSoftmax", made, "Addmm"]))


@pytest.mark.parametrize("makers", [["Addmm"], ["Mul"], ["LogSoftmax", "Addmm"], ["Mean"], []])
def test_silent_where_logits_may_be_anything(makers):
    assert found(*readings(makers=makers)) == []


def test_one_class_is_no_choice():
    (finding,) = found(*readings(classes=1, shape=[8, 1]))
    assert finding.severity == "critical"


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        ({"target_dtype": "float32"}, "long()"),
        ({"target_shape": [8, 4]}, "argmax"),
        ({"target_shape": [8, 1]}, "squeeze(1)"),
        ({"shape": [8, 6, 4], "target_shape": [8, 6]}, "flatten"),
        ({"target_shape": [16]}, "reshape"),
        ({"target_dtype": "int32"}, "long()"),
        ({"name": "binary_cross_entropy", "low": -1.0, "high": 2.0, "target_dtype": "float32"}, "with_logits"),
        ({"name": "mse_loss"}, "float()"),
    ],
)
def test_a_loss_that_raised(call, advice):
    (finding,) = found(raised(**{"name": "cross_entropy_loss"} | call))
    assert (finding.severity, finding.step) == ("critical", 0)
    assert advice in finding.recommendations[0]


def test_silent_where_something_else_is_wrong():
    assert found(raised(name="cross_entropy_loss", bad=2)) == []
    assert found(raised(name="cross_entropy_loss")) == []
    assert found(Reading(0, facts={"loss": {"failed": {"name": "mse_loss", "error": "RuntimeError: device"}}})) == []


def test_logits_that_are_cut_off_are_no_probabilities():
    (finding,) = found(*readings(name="binary_cross_entropy", makers=["Clamp", "Addmm"]))
    assert finding.severity == "warning"
    for healthy in (["Clamp", "Sigmoid"], ["Clamp"], ["Clamp", "Mean"], ["Sigmoid", "Addmm"]):
        assert found(*readings(name="binary_cross_entropy", makers=healthy)) == []
    assert found(*readings(name="mse_loss", makers=["Clamp", "Convolution"])) == []
