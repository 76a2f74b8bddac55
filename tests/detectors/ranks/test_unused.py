"""What `unused-parameter` says of `DistributedDataParallel`."""

from __future__ import annotations

import pytest

from seismograd.detectors.loop.unused_parameter import UnusedParameter
from seismograd.judge import judge_all
from seismograd.records import Reading, Severity


def test_the_error_of_ddp():
    facts = {"unused": ["head.weight", "head.bias"], "message": "Expected to have finished reduction ..."}
    (finding,) = judge_all([Reading(3, facts={"ddp": facts}, rank=1)], [UnusedParameter()])
    assert (finding.severity, finding.rank, finding.where.parameter) == (Severity.CRITICAL, 1, "head.weight")
    assert "`head.weight`, `head.bias` had no gradient in the last backward" in finding.message
    assert "find_unused_parameters=True" in finding.recommendations[1]
    assert finding.evidence["parameters"] == 2


def test_a_layer_that_was_replaced_after_the_wrapping():
    facts = {"unused": [], "gone": 2, "message": "Expected ..."}
    (finding,) = judge_all([Reading(3, facts={"ddp": facts})], [UnusedParameter()])
    assert "2 parameters that are no longer in the model" in finding.message
    assert "before it is wrapped" in finding.recommendations[0]


def test_the_error_without_names():
    (finding,) = judge_all([Reading(3, facts={"ddp": {"message": "Expected ..."}})], [UnusedParameter()])
    assert "a parameter had no gradient" in finding.message
    assert judge_all([Reading(3, facts={"ddp": {}})], [UnusedParameter()]) == []


SEARCHED = {"find_unused": True, "never": [], "steps": 30}


def test_a_search_for_nothing(ranks):
    (finding,) = judge_all([ranks.reading(30, unused=SEARCHED)], [UnusedParameter()])
    assert (finding.id, finding.severity) == ("unused-parameter", Severity.INFO)
    assert "in 30 passes every parameter had its gradient" in finding.message


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"unused": SEARCHED | {"steps": 29}},  # on its limit
        {"unused": SEARCHED | {"find_unused": False}},
        {"unused": SEARCHED | {"never": ["head.weight"]}},
        {"unused": SEARCHED | {"at_times": ["experts.3.weight"]}},
        {"unused": SEARCHED, "signs": {"ungraded": {1: ["head.weight"]}}},
    ],
)
def test_is_silent(ranks, told):
    assert judge_all([ranks.reading(30, **told)], [UnusedParameter()]) == []
