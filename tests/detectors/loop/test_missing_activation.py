from seismograd.detectors.loop.missing_activation import MissingActivation
from seismograd.judge import judge_all
from seismograd.records import Reading


def readings(widths, count=3, **stack):
    layers = [f"{at}.weight" for at in range(len(widths) - 1)]
    told = {"layers": layers, "widths": widths, "kinds": ["Addmm"], "plain": True, "whole": True} | stack
    return [Reading(step, facts={"loss": {"stacks": [told]}}) for step in range(count)]


def found(many, **limits):
    return judge_all(many, [MissingActivation(**limits)])


def test_a_whole_model_without_one():
    (finding,) = found(readings([20, 64, 4]))
    assert (finding.severity, finding.step, finding.where.module) == ("warning", 1, "0")
    assert "The whole model is linear" in finding.message
    assert found(readings([20, 64, 4], plain=False, kinds=["Addmm", "Convolution"]))[0].severity == "warning"


def test_in_a_model_that_has_others():
    assert found(readings([20, 64, 4], whole=False))[0].severity == "info"
    assert found(readings([20, 64, 64, 4], whole=False))[0].severity == "warning"
    assert found(readings([20, 64, 64, 4], whole=False), long=4)[0].severity == "info"


def test_silent_where_it_is_meant():
    assert found(readings([20, 4, 20])) == []
    assert found(readings([64, 8, 8, 64], whole=False)) == []
    assert found(readings([64, 80, 64], whole=False, plain=False)) == []
    assert found(readings([64, 80, 64], whole=False, kinds=["Convolution"])) == []
    assert found(readings([0, 8, 64])) == [], "how wide the first one is was not seen"


def test_on_its_limit():
    assert found(readings([20, 4, 4]))
    assert found(readings([20, 3, 4])) == []
    assert found(readings([20, 64, 4], 1)) == []
    assert found(readings([20, 64, 4], 1), looks=1)
