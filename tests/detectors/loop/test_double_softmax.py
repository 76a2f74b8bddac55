import pytest

from seismograd.detectors.loop.double_softmax import DoubleSoftmax
from seismograd.judge import judge_all
from seismograd.records import Reading


def readings(count=4, **call):
    told = {"name": "cross_entropy_loss", "makers": ["Addmm"], "classes": 10, "file": "t.py", "line": 3} | call
    return [Reading(step, facts={"loss": {"calls": [told]}}) for step in range(count)]


def found(*many, **limits):
    return judge_all(many, [DoubleSoftmax(**limits)])


@pytest.mark.parametrize(
    ("name", "makers"),
    [
        ("cross_entropy_loss", ["Softmax", "Addmm"]),
        ("nll_loss_nd", ["LogSoftmax", "Softmax", "Addmm"]),
        ("nll_loss_nd", ["Log", "Softmax", "Softmax"]),
        ("binary_cross_entropy_with_logits", ["Sigmoid", "Addmm"]),
        ("binary_cross_entropy", ["Sigmoid", "Sigmoid", "Addmm"]),
    ],
)
def test_fires(name, makers):
    (finding,) = found(*readings(name=name, makers=makers))
    assert (finding.severity, finding.step, finding.where.line) == ("warning", 1, 3)


def test_says_how_low_the_loss_can_get():
    (finding,) = found(*readings(makers=["Softmax", "Addmm"]))
    assert "cannot fall below 1.46" in finding.message
    assert finding.evidence["floor"] == pytest.approx(1.461, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "makers"),
    [
        ("cross_entropy_loss", ["LogSoftmax", "Addmm"]),
        ("cross_entropy_loss", ["Addmm"]),
        ("cross_entropy_loss", ["Sigmoid", "Addmm"]),
        ("cross_entropy_loss", []),
        ("nll_loss_nd", ["Log", "Softmax", "Addmm"]),
        ("nll_loss_nd", ["LogSoftmax", "Addmm"]),
        ("binary_cross_entropy", ["Sigmoid", "Addmm"]),
        ("mse_loss", ["Softmax", "Addmm"]),
    ],
)
def test_silent_on_its_neighbours(name, makers):
    assert found(*readings(name=name, makers=makers)) == []


def test_rows_that_are_distributions():
    rows = {"makers": ["Div"], "low": 0.01, "high": 0.9, "sum_low": 1.0, "sum_high": 1.0}
    assert found(*readings(**rows))
    assert found(*readings(**rows | {"sum_high": 1.01})) == []
    assert found(*readings(**rows | {"sum_high": 1.01}), tolerance=0.02)
    assert found(*readings(**rows | {"low": -0.1})) == []


def test_once_is_not_enough():
    assert found(*readings(1, makers=["Softmax"])) == []
    assert found(*readings(1, makers=["Softmax"]), looks=1)
