"""`rank-straggler`: who holds the others up, in which phase, and noise that only looks like it."""

from __future__ import annotations

import numpy as np
import pytest

from seismograd.detectors.ranks.rank_straggler import RankStraggler
from seismograd.records import Severity

PHASES = ("data", "forward", "backward", "optimizer")


def spread(values):
    order = sorted(values, key=lambda rank: (values[rank], rank))
    middle = order[(len(order) - 1) // 2]
    return {
        "median": values[middle], "low": values[order[0]], "high": values[order[-1]],
        "who": order[-1], "low_who": order[0],
    }  # fmt: skip


def timed(ranks, step, own, extra=None, **told):
    """A step in which each rank works for `own` seconds; `extra`: by phase what a rank takes beyond the others."""
    high = max(own.values())
    times = {"step": spread(dict.fromkeys(own, high + 0.002))}
    for phase in PHASES:
        times[phase] = spread(dict.fromkeys(own, 0.002))
    for phase, more in (extra or {}).items():
        times[phase] = spread({rank: 0.002 + more.get(rank, 0.0) for rank in own})
    return ranks.reading(step, times=times, own=spread(own), world=len(own), **told)


def run_of(ranks, *, count=80, slow=2, more=0.02, base=0.05, phase="data", world=4, noise=0.001):
    rng = np.random.default_rng(0)
    readings = []
    for step in range(count):
        own = {rank: base + float(rng.uniform(0, noise)) for rank in range(world)}
        own[slow] += more
        readings.append(timed(ranks, step, own, {phase: {slow: more}}))
    return readings


def test_names_rank_phase_and_cost(ranks):
    told = ranks.run(RankStraggler(), run_of(ranks))
    first = told[0]
    assert (first.severity, first.rank, first.step) == (Severity.WARNING, 2, 8 + 48 - 1)
    assert first.where.phase == "data"
    assert first.evidence["phase"] == "data"
    assert first.evidence["seconds"] == pytest.approx(0.02, rel=0.1)
    assert first.evidence["share"] == pytest.approx(0.02 / 0.072, rel=0.1)
    assert first.message.startswith("Rank 2 holds the others up: it is the last in 48 of the latest 48 steps, waiting")
    assert "27%" in first.message or "28%" in first.message
    assert "rank 2's loader" in first.recommendations[0].lower()
    assert len(told) == 80 - 55


@pytest.mark.parametrize("phase", ["forward", "optimizer", "rest", "evaluation", "checkpoint", "logging"])
def test_each_phase_has_its_advice(ranks, phase):
    first, *_ = ranks.run(RankStraggler(), run_of(ranks, phase=phase))
    assert first.evidence["phase"] == phase
    assert "phase is not known" not in first.message
    assert first.recommendations


def test_slow_in_backward_does_not_stand_out_there(ranks):
    """All the others wait in backward, so that no phase shows it."""
    readings = [timed(ranks, step, {0: 0.05, 1: 0.09}) for step in range(80)]
    first, *_ = ranks.run(RankStraggler(), readings)
    assert (first.rank, first.evidence["phase"]) == (1, "backward")
    bare = [ranks.reading(r.step, own=r.facts["ranks"]["own"], times={"step": {"median": 0.1}}) for r in readings]
    first, *_ = ranks.run(RankStraggler(), bare)
    assert "In which phase is not known." in first.message


def test_on_its_limit_of_share(ranks):
    """A tenth of the step, to the digit."""

    def readings(more):
        return [
            ranks.reading(
                step,
                world=4,
                times={"step": {"median": 1.0, "high": 1.0, "who": 2}},
                own={"median": 0.5, "high": 0.5 + more, "who": 2},
            )
            for step in range(60)
        ]

    assert ranks.run(RankStraggler(), readings(0.125))
    assert ranks.run(RankStraggler(), readings(0.0999)) == []


def test_on_its_limit_of_constancy(ranks):
    def readings(others):
        """The other rank is last in so many of 48 steps."""
        return [
            timed(ranks, step, {0: 0.05, 1: 0.08} if step % 48 >= others else {0: 0.08, 1: 0.05}) for step in range(104)
        ]

    assert ranks.run(RankStraggler(), readings(7))
    assert ranks.run(RankStraggler(), readings(8)) == []


def test_has_to_be_the_last_mostly_from_the_beginning(ranks):
    """What is bad for a while is noise, until it has lasted."""

    def readings(count):
        return [timed(ranks, step, {0: 0.08, 1: 0.05} if step < 32 else {0: 0.05, 1: 0.08}) for step in range(count)]

    assert ranks.run(RankStraggler(), readings(8 + 24 + 95)) == []
    assert ranks.run(RankStraggler(), readings(8 + 24 + 96))


def test_a_loss_that_is_not_steady_is_noise(ranks):
    readings = [timed(ranks, step, {0: 0.05, 1: 0.09 if step % 10 < 7 else 0.055}) for step in range(120)]
    assert ranks.run(RankStraggler(), readings) == []


def noisy(ranks, world, seed, kind):
    rng, drift = np.random.default_rng(seed), np.zeros(world)
    readings = []
    for step in range(500):
        drift = 0.9 * drift + rng.normal(0, 0.3, world)
        draw = {
            "exponential": rng.exponential(0.02, world),
            "heavy": 0.01 * rng.pareto(1.5, world),
            "drifting": 0.02 * np.exp(drift),
        }[kind]
        own = {rank: 0.02 + float(draw[rank]) for rank in range(world)}
        readings.append(timed(ranks, step, own))
    return readings


@pytest.mark.parametrize("kind", ["exponential", "heavy", "drifting"])
@pytest.mark.parametrize("world", [2, 4, 8])
def test_noise_has_no_culprit(ranks, kind, world):
    for seed in range(3):
        assert ranks.run(RankStraggler(), noisy(ranks, world, seed, kind)) == []


def rank_0_now_and_then(ranks, every=10, seconds=0.2, phase="evaluation"):
    rng = np.random.default_rng(1)
    readings = []
    for step in range(300):
        own = {rank: 0.05 + float(rng.uniform(0, 0.002)) for rank in range(4)}
        extra = {}
        if step % every == 0:
            own[0] += seconds
            extra = {phase: {0: seconds}}
        readings.append(timed(ranks, step, own, extra))
    return readings


def test_rank_0_that_evaluates_now_and_then_is_let_be_unless_it_dominates(ranks):
    assert ranks.run(RankStraggler(), rank_0_now_and_then(ranks)) == []
    assert ranks.run(RankStraggler(), rank_0_now_and_then(ranks, every=100, seconds=30.0)) == []  # three times only
    first, *_ = ranks.run(RankStraggler(), rank_0_now_and_then(ranks, seconds=2.0))
    assert (first.rank, first.evidence["phase"]) == (0, "evaluation")
    assert first.message.startswith("Rank 0 keeps the others waiting at ")
    assert "in evaluation: 2 s each time" in first.message


def test_half_a_window_is_enough_where_it_is_plain(ranks):
    """Three fifths of the step, at every step."""

    def readings(lost, other=-1):
        times = {"step": {"median": 0.1, "high": 0.1, "who": 1}}
        own = {"median": 0.02, "high": 0.02 + lost}
        return [ranks.reading(s, times=times, own=own | {"who": int(s not in (other, other + 1))}) for s in range(32)]

    (first,) = ranks.run(RankStraggler(), readings(0.061))
    assert (first.step, first.rank, first.evidence["limit"]) == (31, 1, 0.6)
    assert ranks.run(RankStraggler(), readings(0.0599)) == []
    assert ranks.run(RankStraggler(), readings(0.061, other=20)) == []


def test_silent_on_the_first_steps(ranks):
    assert ranks.run(RankStraggler(), run_of(ranks, count=55)) == []
    warm = [timed(ranks, step, {0: 0.05, 1: 5.0 if step < 8 else 0.0501}) for step in range(100)]
    assert ranks.run(RankStraggler(), warm) == []


HEALTHY = {
    "tiny steps": lambda ranks: [timed(ranks, step, {0: 0.0002, 1: 0.0009}) for step in range(400)],
    "little in all": lambda ranks: [timed(ranks, step, {0: 0.005, 1: 0.015}) for step in range(400)],
    "one step": lambda ranks: [timed(ranks, s, {0: 0.05, 1: 9.0 if s == 50 else 0.05}) for s in range(100)],
    "two steps": lambda ranks: [timed(ranks, s, {0: 0.05, 1: 9.0 if s in (50, 60) else 0.05}) for s in range(100)],
    "turns": lambda ranks: [timed(ranks, s, {r: 0.05 + 0.05 * (s % 4 == r) for r in range(4)}) for s in range(200)],
    "longer turns": lambda ranks: [
        timed(ranks, s, {r: 0.05 + 0.02 * (s // 16 % 2 == r) for r in (0, 1)}) for s in range(400)
    ],
    "all alike": lambda ranks: [timed(ranks, step, dict.fromkeys(range(8), 0.05)) for step in range(200)],
    "no own time": lambda ranks: [ranks.reading(s, times={"step": {"median": 0.1, "who": 1}}) for s in range(99)],
    "no times": lambda ranks: [ranks.reading(s, own={"median": 0.1, "high": 0.9, "who": 1}) for s in range(99)],
}  # fmt: skip


@pytest.mark.parametrize("case", [name for name in HEALTHY if name != "little in all"])
def test_is_silent(ranks, case):
    assert ranks.run(RankStraggler(), HEALTHY[case](ranks)) == []


def test_little_in_all_is_let_be(ranks):
    """Ten milliseconds a step, of fifteen: in 48 steps less than half a second."""
    assert ranks.run(RankStraggler(), HEALTHY["little in all"](ranks)) == []
    assert ranks.run(RankStraggler(seconds=0.47), HEALTHY["little in all"](ranks))


def test_one_that_begins_late_and_ends_again(ranks):
    readings = [timed(ranks, s, {0: 0.05, 1: 0.15 if 300 <= s < 900 else 0.05}) for s in range(1200)]
    told = ranks.run(RankStraggler(), readings)
    assert told
    assert 500 < told[0].step < 900
    assert told[-1].step < 1000


@pytest.mark.parametrize("kind", ["alone", "replicas", "mixed"])
def test_ranks_that_train_each_for_itself_wait_for_nobody(ranks, kind):
    def of_kind(reading, **times):
        facts = reading.facts["ranks"]
        return ranks.reading(reading.step, **{**facts, "kind": kind, "times": {**facts["times"], **times}})

    readings = run_of(ranks)
    assert ranks.run(RankStraggler(), readings)
    assert ranks.run(RankStraggler(), [of_kind(reading) for reading in readings]) == []
    waits = {"median": 0.02, "low": 0.0, "high": 0.02, "who": 0, "low_who": 2}
    assert ranks.run(RankStraggler(), [of_kind(reading, collective=waits) for reading in readings])
