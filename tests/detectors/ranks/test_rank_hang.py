"""`rank-hang`: where each rank stands, and what has likely happened."""

from __future__ import annotations

import json

import pytest

from seismograd.detectors import DEFAULT
from seismograd.detectors.ranks.rank_hang import RankHang
from seismograd.judge import Judge, judge_all
from seismograd.records import Reading, Severity, strict

STACK = [
    {"file": "train.py", "line": 40, "function": "main", "code": "loss.backward()"},
    {"file": "/usr/lib/python3.11/site-packages/torch/_tensor.py", "line": 9, "function": "backward", "code": "..."},
]


def waits(**told):
    return {
        "step": 41, "phase": "backward", "seconds": 31.0, "sign": "alive", "collective": "all_reduce", "sequence": 123,
        "stack": STACK, "host": "a", "pid": 12,
    } | told  # fmt: skip


def works(**told):
    return waits(collective=None, sequence=None) | told


def hang(ranks, seconds=31.0, limit=30.0, **told):
    facts = {"seconds": seconds, "limit": limit, "usual": 0.05, "world": len(ranks), "step": 41, "ranks": ranks} | told
    return Reading(41, facts={"hang": facts})


def one(*readings):
    checker = RankHang().start()
    found = [checker.check(reading) for reading in readings]
    return found[-1]


def test_a_rank_that_left_its_loop():
    finding = one(hang({0: waits(), 1: works(step=40, sign="ended", phase=None, stack=[]), 2: waits(), 3: waits()}))
    assert (finding.severity, finding.rank, finding.step) == (Severity.CRITICAL, 1, 41)
    assert finding.evidence["cause"] == "left-early"
    assert finding.message == (
        "No step has been made for 31 s (one usually takes 50 ms). Ranks 0, 2 and 3 wait in `all_reduce` (number 123),"
        " in backward at step 41; rank 1 ended after step 40. Rank 1 has left the loop, and the others wait for a step"
        " that it will not make: most likely it had fewer batches."
    )
    assert finding.evidence["standing"]["0"]["stack"][0] == "train.py:40 in main: loss.backward()"
    assert finding.evidence["lines"]["rank 0"] == (
        "waits in `all_reduce` (number 123), in backward at step 41, at train.py:40: loss.backward()"
    )
    assert finding.evidence["lines"]["rank 1"] == "ended after step 40"


def test_a_rank_that_is_stopped_or_dead():
    finding = one(hang({0: waits(), 1: works(sign="silent", phase="forward", host="b", pid=77)}))
    assert (finding.severity, finding.rank) == (Severity.CRITICAL, 1)
    assert "rank 1 fell silent in forward at step 41" in finding.message
    assert "stopped or dead" in finding.message
    assert "process 77 on host b" in finding.recommendations[0]


def test_a_rank_that_was_never_heard_of():
    finding = one(hang({0: waits(), 1: {"sign": "unknown"}}))
    assert (finding.rank, finding.evidence["cause"]) == (1, "never-heard")


def test_different_collectives():
    stack = [{"file": "train.py", "line": 55, "function": "main", "code": "dist.broadcast(x, 0)"}]
    ranks = {0: waits(), 1: waits(), 2: waits(collective="broadcast", phase="rest", stack=stack)}
    finding = one(hang(ranks))
    assert (finding.severity, finding.rank) == (Severity.CRITICAL, 2)
    assert (finding.where.file, finding.where.line, finding.where.code) == ("train.py", 55, "dist.broadcast(x, 0)")
    assert "wait in different collectives" in finding.message


@pytest.mark.parametrize("rank", [0, 1])
def test_of_two_the_one_past_its_loop_is_to_blame(rank):
    gradients = waits(collective="the all-reduce of gradients")
    ranks = {rank: waits(collective="barrier", phase="collective"), 1 - rank: gradients}
    finding = one(hang(ranks))
    assert finding.rank == rank
    assert "waits in the all-reduce of gradients (number 123), in backward at step 41" in finding.message
    assert "waits in `barrier` (number 123) at step 41" in finding.message


def test_of_two_the_one_behind_is_to_blame():
    assert one(hang({0: waits(sequence=122), 1: waits(sequence=123)})).rank == 0
    assert one(hang({0: waits(sequence=None), 1: waits(sequence=None, collective="barrier")})).rank == 1


@pytest.mark.parametrize(("phase", "said"), [("data", "loading data"), ("rest", "elsewhere"), (None, "elsewhere")])
def test_one_that_does_not_come(phase, said):
    finding = one(hang({0: waits(), 1: works(phase=phase)}))
    assert (finding.severity, finding.rank, finding.evidence["cause"]) == (Severity.CRITICAL, 1, "still-working")
    assert f"still {said}" in finding.message
    assert finding.where.line == 40


def test_one_that_saves_is_a_warning_until_it_has_lasted():
    ranks = {0: waits(), 1: works(phase="checkpoint")}
    finding = one(hang(ranks))
    assert (finding.severity, finding.rank, finding.evidence["cause"]) == (Severity.WARNING, 1, "still-working")
    assert "still saving a checkpoint" in finding.message
    assert one(hang(ranks, seconds=149.9)).severity is Severity.WARNING
    assert one(hang(ranks, seconds=150.0)).severity is Severity.CRITICAL


def test_all_in_the_same_collective_or_in_none():
    finding = one(hang({0: waits(), 1: waits()}))
    assert (finding.severity, finding.evidence["cause"]) == (Severity.CRITICAL, "same-collective")
    finding = one(hang({0: works(), 1: works()}))
    assert (finding.severity, finding.evidence["cause"]) == (Severity.WARNING, "no-collective")
    finding = one(hang({0: works(step=41), 1: works(step=40)}))
    assert (finding.rank, finding.evidence["cause"]) == (1, "behind")


def test_on_its_limit():
    ranks = {0: waits(), 1: works(sign="silent")}
    assert one(hang(ranks, seconds=30.0)) is not None
    assert one(hang(ranks, seconds=29.9)) is None


FINISHING = {
    "saves": works(phase="checkpoint"),
    "evaluates": works(phase="evaluation"),
    "something": works(phase=None),
    "loads": works(phase="data"),
}


@pytest.mark.parametrize("case", FINISHING)
def test_is_silent_when_rank_0_finishes_alone(case):
    ended = works(sign="ended", step=100)
    assert one(hang({0: FINISHING[case], 1: ended, 2: ended})) is None


def test_is_silent_when_all_have_ended_or_nothing_is_told():
    assert one(hang({0: works(sign="ended"), 1: works(sign="ended")})) is None
    assert one(hang({})) is None
    assert one(Reading(3, facts={"hang": {}})) is None


def test_what_is_learnt_later_is_told_in_the_same_finding():
    judge = Judge([RankHang()])
    judge.observe(hang({0: waits(), 1: works()}))
    judge.observe(hang({0: waits(), 1: works(sign="silent")}, seconds=61.0))
    (finding,) = judge.findings
    assert (finding.severity, finding.rank, finding.count) == (Severity.CRITICAL, 1, 2)
    assert "for 1 min 1 s" in finding.message
    assert finding.evidence["cause"] == "silent"


def test_follows_from_inputs_that_are_uneven():
    uneven = {"world": 2, "kind": "ddp", "loaders": {"lengths": {0: 10, 1: 9}, "join": False}}
    stuck = hang({0: waits(), 1: works(sign="ended", step=9)})
    findings = judge_all([Reading(2, facts={"ranks": uneven}), stuck], DEFAULT)
    assert [finding.id for finding in findings] == ["rank-uneven-input", "rank-hang"]
    assert findings[1].evidence["because"] == "rank-uneven-input"


def test_ten_thousand_ranks_stay_readable():
    deep = [{"file": "train.py", "line": at, "function": "f" * 5000, "code": "x" * 5000} for at in range(500)]
    ranks = {rank: waits(stack=deep, step=rank % 50) for rank in range(10_000)}
    ranks[9_999] = works(sign="silent", stack=deep)
    finding = one(hang(ranks))
    assert finding.rank == 9_999
    assert "9999" in finding.evidence["standing"]
    assert len(finding.evidence["standing"]) == len(finding.evidence["lines"]) == 16
    assert len(json.dumps(strict(finding.to_dict()))) < 100_000
    assert len(finding.message) < 1_500
