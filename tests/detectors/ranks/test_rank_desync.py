"""`rank-desync`: replicas that part, why, and those that part by design."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seismograd.detectors.loop.unused_parameter import UnusedParameter
from seismograd.detectors.ranks.rank_desync import RankDesync
from seismograd.judge import Judge
from seismograd.records import Finding, Severity
from seismograd.reports.ranks import merged


def only(ranks, readings):
    """The finding as the judge has it at the end."""
    judge = Judge([RankDesync()])
    for reading in readings:
        judge.observe(reading)
    (finding,) = judge.findings
    return finding


def test_names_step_parameter_rank_and_what_came_before(ranks):
    four = {"groups": [[0, 1, 3], [2]], "counts": [3, 1]}
    detail = ranks.detail(names=[{"name": "0.weight", "values": {0: 1.25, 2: 1.31}}])
    finding = only(ranks, ranks.parted(world=4, told=4, apart=four, detail=detail))
    assert (finding.severity, finding.step, finding.last_step, finding.rank) == (Severity.CRITICAL, 12, 19, 2)
    assert (finding.where.parameter, finding.where.module) == ("0.weight", "0")
    assert finding.message.startswith(
        "Rank 2 has other parameters than ranks 0, 1 and 3 since step 12, first in `0.weight` (its norm is 1.31 on rank"
        " 2, 1.25 on rank 0); 3 of 4 parameters differ. They were alike at 12 compared steps before, last at step 11."
    )
    assert finding.evidence["culprits"] == [2]
    assert finding.evidence["cause"] == "unknown"
    assert "why is not known" in finding.message


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({}, 12),
        ({"apart": {"gradients": {"first": 10}}}, 10),
        ({"apart": {"gradients": {"first": 5}}}, 12),  # they were no reason to part before
        ({"signs": {"clipped": {0: 1.0, 1: 0.5}}}, 9),
        ({"signs": {"called_inside": [0, 1]}, "always": True}, 12),
    ],
)
def test_where_not_all_steps_are_compared_it_is_the_one_at_which_something_was_seen(ranks, more, first):
    signs = more.get("signs", {})
    before = [ranks.reading(step, signs=signs if step > 8 or more.get("always") else {}) for step in (7, 8, 9)]
    apart = {"parameters": ranks.apart(agreed=8)}
    apart |= {what: ranks.apart(agreed=8, **told) for what, told in more.get("apart", {}).items()}
    later = [ranks.reading(step, apart=apart, detail=ranks.detail(), signs=signs) for step in (12, 14)]
    apart["parameters"]["times"] = 2
    (finding,) = ranks.run(RankDesync(), [*before, *later])[:1]
    assert finding.step == first


def test_on_its_limit_under_ddp(ranks):
    """Two compared steps in a row, or one with the gradients."""
    detail = ranks.detail()
    once = ranks.reading(12, apart={"parameters": ranks.apart(times=1)}, detail=detail)
    twice = ranks.reading(13, apart={"parameters": ranks.apart(times=2)})
    both = ranks.reading(12, apart={"parameters": ranks.apart(), "gradients": ranks.apart()}, detail=detail)
    assert ranks.run(RankDesync(), [once]) == []
    assert [finding.step for finding in ranks.run(RankDesync(), [once, twice])] == [12]
    assert [finding.step for finding in ranks.run(RankDesync(), [both])] == [12]


def test_plain_replicas_must_have_been_alike_for_several_steps(ranks):
    detail = ranks.detail()
    few = ranks.parted(60, kind="replicas", apart={"agreements": 4}, detail=detail)
    enough = ranks.parted(8, kind="replicas", apart={"agreements": 5}, detail=detail)
    assert ranks.run(RankDesync(), few) == []
    assert ranks.run(RankDesync(), enough)


@pytest.mark.parametrize(("steps", "alike", "found"), [(5, 0, True), (4, 0, False), (0, 0, False), (5, 1, False)])
def test_plain_replicas_that_began_apart_step_with_one_gradient(ranks, steps, alike, found):
    apart = {"agreements": alike, "one_gradient": steps}
    told = ranks.parted(first=0, kind="replicas", gradients=True, apart=apart, detail=ranks.detail())
    told = ranks.run(RankDesync(), [ranks.stored(reading) for reading in told])
    assert bool(told) is found
    for finding in told[:1]:
        assert (finding.step, finding.evidence["cause"], finding.where.parameter) == (0, "different-start", "0.weight")
        assert not finding.evidence["gradients_differ"]
        assert "began with different weights" in finding.message
        assert "checkpoint" not in " ".join(finding.recommendations)


def test_under_ddp_they_may_have_parted_before_the_first_look(ranks):
    finding = only(ranks, ranks.parted(first=0, apart={"agreements": 0}, detail=ranks.detail()))
    assert "alike" not in finding.message
    assert "agreed_step" not in finding.evidence


def test_is_told_without_the_name_after_some_readings_and_filled_in_later(ranks):
    readings = ranks.parted(16)
    told = ranks.run(RankDesync(), readings)
    assert told
    assert told[0].where.parameter is None
    assert told[0].last_step == 12 + 1 + RankDesync().wait
    judge = Judge([RankDesync()])
    for reading in readings:
        judge.observe(reading)
    late = ranks.reading(28, apart={"parameters": ranks.apart(times=17)}, detail=ranks.detail())
    judge.observe(late)
    (finding,) = judge.findings
    assert finding.where.parameter == "0.weight"
    assert "`0.weight`" in finding.message
    assert (finding.step, finding.last_step, finding.count) == (12, 28, len(told) + 1)


def test_the_last_reading_is_not_waited_for(ranks):
    readings = [*ranks.parted(2)[:1], ranks.reading(13, apart={"parameters": ranks.apart(times=2)}, over=True)]
    assert len(ranks.run(RankDesync(), readings)) == 1


def test_keeps_its_rank_when_more_is_learnt(ranks):
    """The key of a finding has the rank in it: a second one would be a second fault."""
    late = {"called_inside": [0]}
    readings = [*ranks.parted(10), *ranks.parted(4, first=12, gradients=True, signs=late)]
    assert {finding.rank for finding in ranks.run(RankDesync(), readings)} == {1}


CAUSES = {
    "forward-past-wrapper": ({"called_inside": [1]}, True, "model.module(x)", 1),
    "no-sync": ({"no_sync": [0]}, True, "no_sync()", 0),
    "parameters-unknown-to-wrapper": ({"foreign": {1: ["0.weight"]}}, True, "`0.weight`", 1),
    "control-flow": ({"ungraded": {1: ["head.weight"]}}, True, "`head.weight` had no gradient on rank 1", 1),
    "step-skipped": ({"unstepped": [1]}, False, "rank 1 did not step", 1),
    "changed-outside-optimizer": ({"changed_outside": {1: ["0.weight"]}}, False, "outside the optimizer on rank 1", 1),
    "unsynchronised-clipping": ({"clipped": {0: 1.5, 1: 0.7}}, False, "rank 0 clips them to 1.5 and rank 1 to 0.7", 1),
    "learning-rates": ({"rates": {0: [0.1], 1: [0.01]}}, False, "0.01 on rank 1 and 0.1 on rank 0", 1),
    "collective-skipped": ({"collectives": {0: 41, 1: 40}}, False, "rank 1 has run 40 collectives", 1),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_likely_cause(ranks, cause):
    signs, gradients, said, rank = CAUSES[cause]
    finding = only(ranks, ranks.parted(gradients=gradients, signs=signs, detail=ranks.detail()))
    assert finding.evidence["cause"] == cause
    assert said in finding.message
    assert "Likely cause: " in finding.message
    assert finding.rank == rank
    assert finding.message.endswith(".")
    assert "checkpoint of before step 12" in finding.recommendations[-1]
    assert finding.evidence["gradients_differ"] is gradients


@pytest.mark.parametrize("cause", CAUSES)
def test_all_ranks_may_have_done_it(ranks, cause):
    signs, gradients, _, _ = CAUSES[cause]
    every = {
        sign: [0, 1] if isinstance(told, list) else {0: next(iter(told.values())), **told}
        for sign, told in signs.items()
    }
    finding = only(ranks, ranks.parted(gradients=gradients, signs=every, detail=ranks.detail()))
    assert finding.rank == 1
    if cause != "step-skipped":
        assert "Rank 0 and rank 1 have different parameters since step 12" in finding.message


def test_each_rank_takes_a_branch_of_its_own(ranks):
    signs = {"ungraded": {0: ["q.weight"], 1: ["p.weight"]}, "graded_otherwise": [1]}
    finding = only(ranks, ranks.parted(gradients=True, signs=signs, detail=ranks.detail()))
    assert finding.evidence["cause"] == "control-flow"
    assert "`q.weight` had no gradient on rank 0, and `p.weight` had no gradient on rank 1" in finding.message


def test_a_remark_does_not_explain_it():
    judge = Judge([RankDesync(), UnusedParameter()])
    remark = Finding("unused-parameter", Severity.INFO, 3, "2 parameters were never reached")
    parted = Finding("rank-desync", Severity.CRITICAL, 9, "rank 1 has other parameters")
    stopped = replace(remark, severity=Severity.CRITICAL)
    assert not judge._explains(remark, parted)
    assert judge._explains(stopped, parted)
    assert "because" not in merged([remark, replace(parted, rank=1), replace(remark, rank=1)])[0].evidence
    assert merged([stopped, replace(parted, rank=1), replace(stopped, rank=1)])[1].evidence["because"] == remark.id


def test_a_rank_that_does_not_clip(ranks):
    finding = only(ranks, ranks.parted(signs={"clipped": {0: 1.5}}, detail=ranks.detail()))
    assert "rank 0 clips the gradients, and rank 1 does not" in finding.message


def test_clipping_is_no_cause_where_the_gradients_differ_already(ranks):
    signs = {"clipped": {0: 1.5, 1: 0.7}}
    finding = only(ranks, ranks.parted(gradients=True, signs=signs, detail=ranks.detail()))
    assert finding.evidence["cause"] == "unknown"


def test_a_sign_of_long_ago_is_no_cause(ranks):
    before = ranks.reading(3, signs={"no_sync": [1]})
    finding = only(ranks, [before, *ranks.parted(detail=ranks.detail())])
    assert finding.evidence["cause"] == "unknown"


def test_a_sign_that_was_seen_at_the_last_agreement_is(ranks):
    before = ranks.reading(11, signs={"unstepped": [1]})
    finding = only(ranks, [before, *ranks.parted(detail=ranks.detail())])
    assert finding.evidence["cause"] == "step-skipped"


def test_what_all_ranks_write_to_is_no_cause_if_there_is_a_better_one(ranks):
    signs = {"changed_outside": {0: ["0.weight"], 1: ["0.weight"]}, "rates": {0: [0.1], 1: [0.01]}}
    finding = only(ranks, ranks.parted(signs=signs, detail=ranks.detail()))
    assert finding.evidence["cause"] == "learning-rates"


def test_two_halves_and_each_its_own(ranks):
    halves = {"groups": [[0, 1], [2, 3]], "counts": [2, 2]}
    finding = only(ranks, ranks.parted(world=4, apart=halves))
    assert finding.message.startswith("Ranks 0 and 1 and ranks 2 and 3 have different parameters since step 12")
    assert finding.rank == 2
    each = {"groups": [[0], [1], [2], [3]], "counts": [1, 1, 1, 1]}
    finding = only(ranks, ranks.parted(world=4, apart=each, gradients=True, signs={"called_inside": [0, 1, 2, 3]}))
    assert finding.message.startswith("Each of the 4 ranks has parameters of its own since step 12")
    assert "every rank calls the module inside" in finding.message


def test_norms_that_differ_late_are_written_out(ranks):
    rows = [{"name": "w", "values": {0: 1.250001, 1: 1.25}}]
    finding = only(ranks, ranks.parted(gradients=True, detail=ranks.detail(names=rows)))
    assert "(its norm is 1.25 on rank 1, 1.250001 on rank 0)" in finding.message


def test_buffers_are_a_warning_after_many_agreements(ranks):
    detail = ranks.detail(what="buffers", names=[{"name": "codebook"}], differ=1, of=2)
    assert ranks.run(RankDesync(), ranks.parted(what="buffers", apart={"agreements": 15}, detail=detail)) == []
    finding = only(ranks, ranks.parted(what="buffers", apart={"agreements": 16}, detail=detail))
    assert finding.severity is Severity.WARNING
    assert "buffers" in finding.message
    assert "`codebook`" in finding.message
    assert "updates" not in finding.message, "an optimizer has nothing to do with it"


def local_sgd(ranks, period=8, rounds=20, **told):
    """Parts for a few steps, is averaged, and parts again; `agreements` goes on rising."""
    readings, agreements = [], 1
    for start in range(0, period * rounds, period):
        for at in range(1, period):
            apart = ranks.apart(start + 1, at, agreements, agreed=start)
            readings.append(ranks.reading(start + at, apart={"parameters": apart, "gradients": apart}, **told))
        agreements += 1
        readings.append(ranks.reading(start + period, **told))
    return readings


BATCH_NORM = {"what": "buffers", "names": [{"name": "1.running_mean"}, {"name": "1.num_batches_tracked"}]}
HEALTHY = {
    "alone": lambda ranks: ranks.parted(50, kind="alone", gradients=True, detail=ranks.detail()),
    "mixed": lambda ranks: ranks.parted(50, kind="mixed", gradients=True, detail=ranks.detail()),
    "never alike": lambda ranks: ranks.parted(50, first=0, kind="replicas", apart={"agreements": 0}, gradients=True),
    "one seed": lambda ranks: ranks.parted(50, first=2, kind="replicas", apart={"agreements": 2}, gradients=True),
    "local SGD": lambda ranks: local_sgd(ranks, kind="replicas"),
    "local SGD over long": lambda ranks: local_sgd(ranks, period=50, kind="replicas"),
    "local SGD, named": lambda ranks: [
        ranks.reading(0, kind="replicas", detail=ranks.detail()),
        *local_sgd(ranks, kind="replicas"),
    ],
    "batch norm": lambda ranks: ranks.parted(99, first=1, what="buffers", apart={"agreements": 0}),
    "batch norm, unfrozen": lambda ranks: ranks.parted(99, what="buffers", apart={"agreements": 99}, detail=BATCH_NORM),
    "buffers without a name": lambda ranks: ranks.parted(99, what="buffers", apart={"agreements": 99}),
    "rounding": lambda ranks: ranks.parted(200, detail=ranks.detail(gap=9e-7)),
    "only gradients": lambda ranks: ranks.parted(50, what="gradients"),
    "nothing": lambda ranks: [ranks.reading(step) for step in range(50)],
    "signs alone": lambda ranks: [ranks.reading(step, signs={"no_sync": [0, 1]}) for step in range(50)],
    "one step": lambda ranks: ranks.parted(1, detail=ranks.detail()),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_is_silent(ranks, case):
    assert ranks.run(RankDesync(), HEALTHY[case](ranks)) == []


def test_local_sgd_that_stops_averaging(ranks):
    """Apart four times as long as ever before."""
    readings = local_sgd(ranks, rounds=6, kind="replicas")
    start = readings[-1].step
    for at in range(1, 40):
        apart = ranks.apart(start + 1, at, 7, agreed=start)
        readings.append(ranks.reading(start + at, kind="replicas", apart={"parameters": apart}, detail=ranks.detail()))
    told = ranks.run(RankDesync(), readings)
    assert told[0].step == start + 1
    assert told[0].last_step == start + 28


def test_rounding_is_told_once_it_has_grown_or_has_a_cause(ranks):
    small = ranks.parted(8, detail=ranks.detail(gap=1e-8))
    assert ranks.run(RankDesync(), small) == []
    grown = ranks.reading(20, apart={"parameters": ranks.apart(times=9)}, detail=ranks.detail(gap=2e-7))
    assert len(ranks.run(RankDesync(), [*small, grown])) == 1
    edge = ranks.reading(20, apart={"parameters": ranks.apart(times=9)}, detail=ranks.detail(gap=1e-7))
    assert ranks.run(RankDesync(), [*small, edge]) == []
    assert ranks.run(RankDesync(), ranks.parted(8, detail=ranks.detail(gap=1e-6)))  # on the limit
    assert ranks.run(RankDesync(), ranks.parted(8, detail=ranks.detail(gap=1e-8), signs={"unstepped": [1]}))
    assert ranks.run(RankDesync(), ranks.parted(8, detail=ranks.detail(gap=1e-8), gradients=True))
