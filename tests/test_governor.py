"""The share of the watch stays within the budget, after a short grace."""

from __future__ import annotations

import pytest

from seismograd import governor
from seismograd.governor import Governor, Stride
from seismograd.records import DebugLevel


def run(budget_keeper, steps, *, step=0.001, floor=0.0001, tables=0.002, idle=0.0000005):
    """Plays steps of a given length; returns how many were read and how many tables were taken."""
    read = taken = 0
    for number in range(steps):
        own = idle
        if budget_keeper.reads:
            read += 1
            own += floor
        if budget_keeper.takes_tables:
            taken += 1
            own += tables
            budget_keeper.spend_on_tables(tables)
        budget_keeper.spend(own)
        budget_keeper.stepped(number, step + own)
    return read, taken


@pytest.mark.parametrize("level", list(DebugLevel))
@pytest.mark.parametrize("step", [0.0002, 0.001, 0.01, 0.1])
def test_the_share_stays_within_the_budget(monkeypatch, level, step):
    monkeypatch.setattr(governor, "GRACE", 0.0)
    keeper = Governor(level)
    read, taken = run(keeper, 20_000, step=step)
    assert keeper.share <= keeper.budget * 1.1, "a little over where one of 64 steps is more than it earns"
    assert read > 0
    if level is not DebugLevel.BASIC:
        assert taken > 1, "the tables are not starved by the floor"


def test_a_short_run_is_read_in_full(monkeypatch):
    monkeypatch.setattr(governor, "GRACE", 0.75)
    keeper = Governor(DebugLevel.BASIC)
    read, _ = run(keeper, 1000, step=0.0002)
    assert read == 1000
    read, _ = run(keeper, 100_000, step=0.0002)
    assert read < 10_000


def test_where_there_is_room_every_step_is_read_and_tables_keep_their_spacing():
    keeper = Governor(DebugLevel.ADVANCED)
    read, taken = run(keeper, 1000, step=1.0)
    assert read == 1000
    assert 95 <= taken <= 120
    keeper = Governor(DebugLevel.EXTREME)
    assert run(keeper, 100, step=1.0) == (100, 100)


def test_basic_looks_closely_at_the_first_steps_only():
    keeper = Governor(DebugLevel.BASIC)
    assert run(keeper, 1000, step=1.0) == (1000, 4)


def test_a_budget_of_ones_own(monkeypatch):
    monkeypatch.setattr(governor, "GRACE", 0.0)
    keeper = Governor(DebugLevel.EXTREME, 0.002)
    run(keeper, 20_000, step=0.001)
    assert keeper.budget == 0.002
    assert keeper.share <= 0.0021 + 0.005, "what the hooks cost on steps that are not read cannot be saved"


def test_the_halves_of_a_gans_step_are_read_both_or_none(monkeypatch):
    monkeypatch.setattr(governor, "GRACE", 0.0)
    keeper = Governor(DebugLevel.BASIC)
    pairs = []
    for step in range(2_000):
        for _ in range(2):
            pairs.append((step, keeper.reads))
            keeper.spend(0.0001 if keeper.reads else 0.000005)
            keeper.stepped(step, 0.001)
    generator = sum(reads for _, reads in pairs[1::2])
    discriminator = sum(reads for _, reads in pairs[::2])
    assert abs(generator - discriminator) <= 1
    assert 0 < generator < 2_000


def test_a_pause_is_not_made_up_for(monkeypatch):
    monkeypatch.setattr(governor, "GRACE", 0.01)
    keeper = Governor(DebugLevel.BASIC)
    run(keeper, 5_000, step=0.001)
    keeper.stepped(5_000, 3600.0)  # an hour of validation
    before = keeper.own
    for step in range(5_001, 6_000):
        keeper.spend(0.0001 if keeper.reads else 0.000005)
        keeper.stepped(step, 0.001)
    assert keeper.own - before < 0.01 + 0.01 * 1.0 + 0.006


def test_however_short_the_steps_some_are_read(monkeypatch):
    monkeypatch.setattr(governor, "GRACE", 0.0)
    keeper = Governor(DebugLevel.BASIC)
    read, _ = run(keeper, 64_000, step=0.0001, idle=0.00001)
    assert 900 <= read <= 1100


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "0.1", float("nan")])
def test_what_is_no_share_is_refused(budget: object) -> None:
    keeper = Governor(DebugLevel.BASIC, 0.2)
    with pytest.raises(ValueError, match="is no share of a step"):
        keeper.budget = budget  # type: ignore[assignment]
    assert keeper.budget == 0.2


def test_a_step_that_is_insisted_on_is_read() -> None:
    keeper = Governor(DebugLevel.BASIC, 1e-6)
    keeper.drain()
    keeper.spend(1.0)
    keeper.stepped(0, 0.1)
    assert not keeper.reads
    keeper.insists = True
    keeper.stepped(1, 0.1)
    assert keeper.reads
    keeper.insists = False
    keeper.stepped(2, 0.1)
    assert not keeper.reads


def _ranks(levels, costs, steps=2000, seconds=0.01):
    """The steps that governors read, and those whose tables they take, each with costs of its own."""
    told = []
    for level, (floor, tables) in zip(levels, costs, strict=True):
        governor = Governor(DebugLevel.of(level))
        governor.together = Stride(DebugLevel.of(level))
        governor.drain()
        read, dear = set(), set()
        for step in range(steps):
            if governor.reads:
                read.add(step)
                governor.spend(floor)
            if governor.takes_tables:
                dear.add(step)
                governor.spend(tables)
                governor.spend_on_tables(tables)
            governor.stepped(step, seconds)
        told.append((read, dear, governor))
    return told


def test_ranks_read_the_same_steps_whatever_they_can_afford():
    (one, other) = _ranks(["advanced", "advanced"], [(0.001, 0.002), (0.0035, 0.008)])
    late = set(range(256, 2000))
    assert other[0] & late < one[0] & late, "who can afford less reads some of the others' steps"
    assert other[1] & late <= one[1] & late
    assert one[0] & late
    assert one[1] & late


def test_ranks_stay_within_the_budget_together():
    for read, dear, own in _ranks(["basic", "advanced"], [(0.0002, 0.0), (0.001, 0.004)], steps=4000):
        assert own.share <= own.budget * 1.1
        assert len(read) > 40
        assert len(dear) >= 3


def test_what_costs_nothing_is_done_at_every_step():
    ((read, _, _),) = _ranks(["extreme"], [(1e-9, 1e-9)], steps=500)
    assert len(read) == 500


def test_however_dear_some_steps_are_read_and_the_same_ones():
    told = _ranks(["basic", "basic"], [(0.5, 0.0), (1.0, 0.0)])
    for read, _, _ in told:
        assert {step for step in range(192, 2000) if step % 64 == 0} <= read
    assert {step for step in told[0][0] if step > 192} == {step for step in told[1][0] if step > 192}
