import pytest

from seismograd.detectors.loop.eval_mode_training import EvalModeTraining
from seismograd.judge import judge_all
from seismograd.records import Reading

QUIET = {"steps_before": 20, "dropout": ["drop"], "norms": [], "share_trained": 1.0, "evaluated": {}}


def readings(count=10, **quiet):
    return [Reading(20 + at, facts={"modes": {"quiet": {**QUIET, "steps": at + 1, **quiet}}}) for at in range(count)]


def test_fires_when_it_was_left_in_evaluation_mode():
    evaluated = {"file": "train.py", "line": 7, "code": "model(x)"}
    (finding,) = judge_all(readings(evaluated=evaluated, file="train.py", line=3), [EvalModeTraining()])
    assert (finding.step, finding.severity, finding.where.line) == (20, "warning", 3)
    assert "train.py:7" in finding.message
    assert "`drop` drops nothing" in finding.message


def test_fires_when_it_never_was_in_training_mode():
    (finding,) = judge_all(readings(steps_before=0, dropout=[], norms=["bn1", "bn2"]), [EvalModeTraining()])
    assert "from the start" in finding.message
    assert "`bn1`, `bn2` use old statistics" in finding.message


@pytest.mark.parametrize(
    ("count", "quiet"),
    [
        (2, {}),
        (4, {"steps_before": 0}),
        (10, {"steps_before": 0, "share_trained": 0.1}),  # a new head on a frozen model
        (10, {"dropout": [], "norms": []}),  # all norms are frozen
    ],
)
def test_stays_silent(count, quiet):
    assert judge_all(readings(count, **quiet), [EvalModeTraining()]) == []


def test_stays_silent_without_such_steps():
    assert judge_all([Reading(3, facts={"modes": {"evaluations": []}})], [EvalModeTraining()]) == []


def test_sits_on_its_limits():
    assert judge_all(readings(3), [EvalModeTraining(steps=4)]) == []
    assert len(judge_all(readings(4), [EvalModeTraining(steps=4)])) == 1
    assert len(judge_all(readings(7, steps_before=0, share_trained=0.1), [EvalModeTraining(never=7, share=0.1)])) == 1
