import pytest

from seismograd.detectors.data.repeated_batch import RepeatedBatch
from seismograd.judge import judge_all
from seismograd.records import Reading


def told(detector=None, count=10, **again):
    usual = {"kind": "first", "batches": 16, "seed": None}
    readings = [Reading(at, facts={"batches": {}}) for at in range(2)]
    readings += [
        Reading(1 + times, facts={"batches": {"again": {**usual, "times": times, **again}}})
        for times in range(2, count + 1)
    ]
    return judge_all(readings, [detector or RepeatedBatch()])


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ({"file": "a.py", "line": 3, "code": "next(iter(loader))"}, "first of its 16 batches"),
        ({"kind": "constant"}, "6 in a row are equal"),
        ({"kind": "seed", "seed": 7, "batches": -1}, "torch.manual_seed(7)"),
    ],
)
def test_fires(again, said):
    (finding,) = told(**again)
    assert (finding.step, finding.severity) == (2, "warning")
    assert said in finding.message
    assert finding.where.line == again.get("line")


def test_stays_silent_on_a_few():
    assert told(count=5) == []
    assert judge_all([Reading(at, facts={"batches": {"inputs": {}}}) for at in range(20)], [RepeatedBatch()]) == []


def test_sits_on_its_limit():
    assert told(RepeatedBatch(steps=8), count=7) == []
    assert len(told(RepeatedBatch(steps=8), count=8)) == 1
