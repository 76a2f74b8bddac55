import pytest

from seismograd.detectors.loop.broadcast_loss import BroadcastLoss
from seismograd.judge import judge_all
from seismograd.records import Reading

OUTER = {"shape": [32, 1], "target_shape": [1, 32], "result_shape": [32, 32], "meant": False}


def readings(count=3, **call):
    told = {"name": "mse_loss", "makers": ["Addmm"], "file": "t.py", "line": 3} | call
    return [Reading(step, facts={"loss": {"calls": [told]}}) for step in range(count)]


def found(*many, **limits):
    return judge_all(many, [BroadcastLoss(**limits)])


def test_fires():
    (finding,) = found(*readings(**OUTER))
    assert (finding.severity, finding.step) == ("warning", 1)
    assert "(32, 1) with a target of shape (32): they are broadcast to (32, 32)" in finding.message
    assert "squeeze(1)" in finding.recommendations[0]


@pytest.mark.parametrize("own", [[32, 1], [32]])
def test_fires_on_what_is_written_by_hand(own):
    hand = {"name": "by hand", "op": "Sub", "shape": own, "result_shape": [32, 32], "meant": False}
    assert found(*readings(**hand))
    assert found(*readings(**hand, unlike_outer=1e-6))
    assert found(*readings(**hand, unlike_outer=0.3)) == []
    assert found(*readings(**hand | {"result_shape": [3, 3]})) == []
    assert found(*readings(**hand | {"result_shape": [3, 3]}), rows=3)


def test_pictures():
    assert found(*readings(shape=[4, 1, 8, 8], target_shape=[1, 4, 8, 8], result_shape=[4, 4, 8, 8], meant=False))


def test_silent_on_what_is_meant():
    assert found(*readings(**OUTER | {"meant": True})) == []
    assert found(*readings(shape=[32, 8], target_shape=[32, 8])) == []
    assert found(*readings(shape=[32, 8], target_shape=[1, 1], result_shape=[32, 8], meant=False)) == []
    assert found(*readings(shape=[32, 8], target_shape=[1, 8], result_shape=[32, 8], meant=False)) == []


def test_one_column_for_many_is_an_info():
    (finding,) = found(*readings(shape=[32, 1], target_shape=[32, 8], result_shape=[32, 8], meant=False))
    assert finding.severity == "info"


def test_once_is_not_enough():
    assert found(*readings(1, **OUTER)) == []
    assert found(*readings(1, **OUTER), looks=1)
