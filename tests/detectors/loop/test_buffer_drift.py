import pytest

from seismograd.detectors.loop.buffer_drift import BufferDrift
from seismograd.judge import judge_all
from seismograd.records import Reading

MOVED = {"steps": 5, "norms": ["backbone.bn1"], "shift": 0.4, "ratio": 0.1, "weights": 0.0, "fresh": False}


def told(detector=None, **moved):
    return judge_all([Reading(9, facts={"modes": {"moved": [{**MOVED, **moved}]}})], [detector or BufferDrift()])


@pytest.mark.parametrize("moved", [{}, {"shift": 0.01, "ratio": 0.5}])
def test_fires(moved):
    (finding,) = told(**moved)
    assert (finding.severity, finding.where.module) == ("warning", "backbone.bn1")
    assert "`model.backbone.eval()`" in finding.recommendations[0]


def test_only_mentions_what_does_little_harm():
    assert told(shift=0.1) == []
    assert [finding.severity for finding in told(shift=0.1, steps=20)] == ["info"]


def test_waits_for_a_norm_that_has_seen_nothing():
    assert told(fresh=True) == []
    assert [finding.severity for finding in told(fresh=True, steps=20)] == ["warning"]


@pytest.mark.parametrize("moved", [{"weights": 1e-6}, {"shift": 0.0, "ratio": 0.0}])
def test_stays_silent(moved):
    assert told(**moved, steps=80) == []


def test_sits_on_its_limits():
    assert told(BufferDrift(steps=6)) == []
    assert len(told(BufferDrift(steps=6), steps=6)) == 1
    assert told(BufferDrift(shift=0.4001)) == []
    assert len(told(BufferDrift(shift=0.4))) == 1
