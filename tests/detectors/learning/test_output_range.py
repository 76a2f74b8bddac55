from seismograd.detectors.learning.output_range import OutputRange
from seismograd.judge import judge_all
from seismograd.records import Reading


def readings(outside=0.3, unreachable=0.2, count=6, **call):
    told = {
        "name": "mse_loss",
        "makers": ["Tanh", "Addmm"],
        "reduction": "mean",
        "bounds": [-1.0, 1.0],
        "outside": outside,
        "unreachable": unreachable,
        "target_low": -3.0,
        "target_high": 3.0,
    } | call
    return [Reading(step, facts={"loss": {"calls": [told]}}) for step in range(count)]


def found(many, **limits):
    return judge_all(many, [OutputRange(**limits)])


def test_fires():
    (finding,) = found(readings())
    assert (finding.severity, finding.step) == ("warning", 3)
    assert (
        "from a tanh, between -1 and 1, and the targets of the squared error go from -3 to 3: 30 %" in finding.message
    )
    assert "at least 0" in found(readings(makers=["Relu"], bounds=[0.0, None]))[0].message


def test_silent_on_outliers_noise_and_masks():
    assert found(readings(outside=0.01, unreachable=0.3)) == []
    assert found(readings(outside=0.4, unreachable=0.01)) == []
    assert found(readings(reduction="none")) == []
    assert found([Reading(0, facts={"loss": {"calls": [{"name": "mse_loss", "makers": ["Addmm"]}]}})] * 9) == []


def test_on_its_limit():
    assert found(readings(outside=0.05, unreachable=0.2)) == []
    assert found(readings(outside=0.051, unreachable=0.051))
    assert found(readings(outside=0.05, unreachable=0.2), outside=0.04)
    assert found(readings(count=3)) == []


def test_logits_that_are_never_negative():
    def logits(made, mean):
        told = {"name": "binary_cross_entropy_with_logits", "makers": [made], "target_mean": mean}
        return [Reading(step, facts={"loss": {"calls": [told]}}) for step in range(5)]

    assert "never below one half" in found(logits("Relu", 0.5))[0].message
    assert found(logits("Relu", 0.97)) == []
    assert found(logits("Addmm", 0.5)) == []
