import pytest

from seismograd.detectors.loop.repeated_recovery import RepeatedRecovery
from seismograd.judge import judge_all
from seismograd.records import Reading


def told(steps, action="skip", rung=0, detector=None):
    facts = {"action": action, "rung": rung, "key": "nonfinite-*", "finding": "nonfinite-input"}
    return judge_all([Reading(step, facts={"recovery": facts}) for step in steps], [detector or RepeatedRecovery()])


def test_fires_on_many_actions_within_the_window():
    (finding,) = told(range(0, 100, 10))
    assert finding.severity == "critical"
    assert "nonfinite-input" in finding.message
    assert finding.evidence["recent"] == 10


def test_stays_silent_on_a_rare_bad_batch():
    assert told(range(0, 10_000, 50)) == []


def test_fires_when_a_policy_gives_way():
    (finding,) = told([5], rung=1)
    assert "had not helped" in finding.message


def test_fires_on_rollbacks():
    assert told([100], action="rollback") == []
    assert len(told([100, 900], action="rollback")) == 1


def test_two_optimizers_of_one_step_count_once():
    assert told([step for step in range(0, 90, 10) for _ in range(2)]) == []


@pytest.mark.parametrize(("many", "fires"), [(10, True), (11, False)])
def test_sits_on_its_limit(many, fires):
    assert bool(told(range(0, 100, 10), detector=RepeatedRecovery(many=many))) is fires
    assert bool(told(range(0, 100, 10), detector=RepeatedRecovery(window=90))) is False
