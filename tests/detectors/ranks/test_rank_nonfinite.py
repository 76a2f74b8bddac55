"""`rank-nonfinite`: who went bad first, how it spread, and how it stands with the findings of each rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seismograd.detectors import DEFAULT
from seismograd.detectors.ranks.rank_nonfinite import RankNonfinite
from seismograd.judge import Judge, across_ranks, judge_all, ranked
from seismograd.records import Origin, Reading, Severity, Where
from seismograd.reports.stories import stories

ORIGIN = {
    "phase": "backward", "module": "1", "op": "aten.sqrt", "file": "train.py", "line": 12, "code": "h = x.sqrt()",
    "sure": True, "samples": [3], "note": None,
}  # fmt: skip
SPREAD = {"loss": 0.7, "loss_bad": False, "input_bad": False, "gradient_bad": True, "origin": None}
OWN = {"loss": "NaN", "loss_bad": True, "input_bad": False, "gradient_bad": True, "origin": None}


def bad(ranks, step=12, *, world=4, own=(1,), entry=OWN, rest=SPREAD, **told):
    broken = {rank: dict(entry if rank in own else rest) for rank in range(world)}
    return ranks.reading(step, world=world, told=world, broken=broken, **told)


def test_names_the_rank_and_how_it_spread(ranks):
    (finding,) = ranks.run(RankNonfinite(), [ranks.reading(11, world=4), bad(ranks)])
    assert (finding.severity, finding.rank, finding.step) == (Severity.CRITICAL, 1, 12)
    assert finding.message == (
        "Rank 1 went bad first, at step 12: its loss was NaN while those of the others were finite; the all-reduce of"
        " the gradients then gave it to all 4 ranks."
    )
    assert finding.evidence["spread"] == 3
    assert "that rank 1 had at step 12" in finding.recommendations[0]


def test_names_line_sample_and_capture(ranks):
    entry = {**SPREAD, "origin": ORIGIN, "capture": ".seismograd/run/step-12"}
    (finding,) = ranks.run(RankNonfinite(), [bad(ranks, entry=entry)])
    assert (finding.where.file, finding.where.line, finding.where.op) == ("train.py", 12, "aten.sqrt")
    assert finding.evidence["origin"] == "backward"
    assert finding.evidence["samples"] == [3]
    assert finding.evidence["capture"] == ".seismograd/run/step-12"
    assert "its loss was finite, and its own gradient was not" in finding.message
    assert "It began in the backward pass, with `sqrt` in `1`, at train.py:12." in finding.message
    assert "In its batch sample 3 is to blame." in finding.message
    assert "`.seismograd/run/step-12`" in finding.recommendations[0]


def test_goes_on_while_everyone_is_bad(ranks):
    readings = [bad(ranks), *(bad(ranks, step, own=range(4)) for step in range(13, 20))]
    told = ranks.run(RankNonfinite(), readings)
    assert [(finding.step, finding.rank, finding.last_step) for finding in told] == [
        (12, 1, at) for at in range(12, 20)
    ]
    assert len({finding.message for finding in told}) == 1


def test_a_bad_input(ranks):
    (finding,) = ranks.run(RankNonfinite(), [bad(ranks, entry={**OWN, "input_bad": True})])
    assert "its input was not finite" in finding.message
    assert "drop such samples" in finding.recommendations[1]


def test_the_others_may_still_be_finite(ranks):
    reading = ranks.reading(12, broken={1: OWN})
    (finding,) = ranks.run(RankNonfinite(), [reading])
    assert "are still finite" in finding.message
    assert finding.evidence["spread"] == 0


def test_the_line_comes_later(ranks):
    judge = Judge([RankNonfinite()])
    judge.observe(bad(ranks))
    judge.observe(bad(ranks, entry={**OWN, "origin": ORIGIN}))
    (finding,) = judge.findings
    assert finding.where.line == 12
    assert (finding.count, finding.evidence["revision"]) == (2, 1)


def test_on_its_limit(ranks):
    """Half of the ranks by themselves, and one more."""
    (finding,) = ranks.run(RankNonfinite(), [bad(ranks, own=(1, 2))])
    assert finding.message.startswith("Ranks 1 and 2 went bad first, at step 12: their loss was NaN")
    assert finding.evidence["culprits"] == [1, 2]
    assert ranks.run(RankNonfinite(), [bad(ranks, own=(1, 2, 3))]) == []


def test_in_ten_thousand_ranks(ranks):
    broken = {9_000: OWN, **dict.fromkeys(range(15), SPREAD)}
    counts = {"own": 1, "ranks": 10_000}
    reading = ranks.reading(12, world=10_000, told=10_000, broken=broken, broke=counts)
    (finding,) = ranks.run(RankNonfinite(), [reading])
    assert finding.rank == 9_000
    assert "gave it to all 10,000 ranks" in finding.message
    many = ranks.reading(12, world=10_000, told=10_000, broken=broken, broke={"own": 6_000, "ranks": 10_000})
    assert ranks.run(RankNonfinite(), [many]) == []


SKIPPED = {**SPREAD, "skipped": True}
HEALTHY = {
    "nothing": lambda ranks: [ranks.reading(step) for step in range(20)],
    "all at once": lambda ranks: [bad(ranks, step, own=range(4)) for step in range(12, 20)],
    "both of two": lambda ranks: [bad(ranks, step, world=2, own=(0, 1)) for step in range(12, 20)],
    "nobody knows": lambda ranks: [bad(ranks, own=())],
    "all, then one": lambda ranks: [bad(ranks, 12, own=range(4)), bad(ranks, 13, own=(1,))],
    "scaler that settles": lambda ranks: [bad(ranks, step, own=(), rest=SKIPPED) for step in range(3)],
    "scaler, located": lambda ranks: [bad(ranks, 2, entry={**SKIPPED, "origin": ORIGIN}, rest=SKIPPED)],
    "an update of everyone's": lambda ranks: [
        bad(ranks, own=range(4), entry={**SPREAD, "origin": {**ORIGIN, "phase": "optimizer"}})
    ],
}


@pytest.mark.parametrize("case", HEALTHY)
def test_is_silent(ranks, case):
    assert ranks.run(RankNonfinite(), HEALTHY[case](ranks)) == []


def test_a_second_trouble_on_another_rank_is_a_second_finding(ranks):
    readings = [bad(ranks, 12), ranks.reading(13), bad(ranks, 30, own=(2,))]
    assert [(f.rank, f.step) for f in ranks.run(RankNonfinite(), readings)] == [(1, 12), (2, 30)]


# -- among the findings of the ranks ---------------------------------------------------------------------------------

SQRT = Origin("backward", Where(module="1", op="aten.div", file="train.py", line=12), forward_op="aten.sqrt")


def of_ranks(ranks, located=True, world=3):
    """All readings of a run in which rank 1's backward makes NaN at step 12: rank 0's with the merged ones first."""
    readings = {rank: [] for rank in range(world)}
    for rank in range(world):
        for step in range(12):
            readings[rank].append(Reading(step, {"loss": 1.0, "grad/norm": 1.0}, rank=rank))
        origin = SQRT if located and rank == 1 else None
        nan = float("nan")
        readings[rank].append(Reading(12, {"loss": 0.9, "grad/norm": nan}, rank=rank, origin=origin))
        readings[rank].append(Reading(13, {"loss": nan, "grad/norm": nan}, rank=rank))
    entry = {**SPREAD, "origin": ORIGIN}
    readings[0].append(bad(ranks, world=world, entry=entry))
    readings[0].append(bad(ranks, 13, world=world, own=range(world)))
    return readings


def heads(findings):
    return [(story.finding.id, story.finding.rank) for story in stories(ranked(findings))]


def test_judged_together_the_line_is_the_head_and_all_else_follows(ranks):
    readings = of_ranks(ranks)
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
        findings = judge_all([reading for rank in order for reading in readings[rank]], DEFAULT)
        assert heads(findings) == [("nonfinite-gradient", 1)]
        (spread,) = [finding for finding in findings if finding.id == "rank-nonfinite"]
        assert spread.evidence["because"] == "nonfinite-gradient"
        others = [finding for finding in findings if finding.rank != 1]
        assert len(others) == 4
        assert {finding.evidence["because"] for finding in others} == {"rank-nonfinite"}


def test_rank_0_alone_has_the_spread_as_its_head(ranks):
    """As the leader's own judge sees it: the findings of rank 1 are in another process."""
    findings = judge_all(of_ranks(ranks)[0], DEFAULT)
    assert heads(findings) == [("rank-nonfinite", 1)]
    assert findings[0].where.line == 12
    assert "because" not in findings[0].evidence


def test_put_together_from_the_judges_of_all_ranks(ranks):
    readings = of_ranks(ranks)
    apart = [finding for rank in readings for finding in judge_all(readings[rank], DEFAULT)]
    findings = ranked(across_ranks(apart))
    assert heads(findings) == [("nonfinite-gradient", 1)]
    (spread,) = [finding for finding in findings if finding.id == "rank-nonfinite"]
    assert spread.evidence["because"] == "nonfinite-gradient"
    assert across_ranks(findings) == findings


def test_without_a_line_the_spread_is_the_head(ranks):
    readings = of_ranks(ranks, located=False)
    findings = judge_all([reading for rank in readings for reading in readings[rank]], DEFAULT)
    assert heads(findings) == [("rank-nonfinite", 1)]


def test_ranks_with_faults_of_their_own_stay_apart(ranks):
    """Without a finding between ranks nothing is linked over them, and what came before is no effect."""
    readings = of_ranks(ranks)
    early = Reading(3, {"loss": float("nan"), "grad/norm": 1.0}, rank=2, origin=replace(SQRT, phase="loss"))
    whole = [early, *readings[1], *readings[0]]
    findings = judge_all(whole, DEFAULT)
    (own,) = [finding for finding in findings if finding.rank == 2]
    assert own.evidence.get("because") is None
    alone = [reading for rank in (1, 2) for reading in readings[rank]]
    assert {rank for _, rank in heads(judge_all(alone, DEFAULT))} == {1, 2}
