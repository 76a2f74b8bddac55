"""Ranks tell each other of their steps: several in one process here, over one store."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch.distributed as dist

from seismograd.distributed import exchange as exchanges
from seismograd.distributed.channel import Channel
from seismograd.distributed.exchange import Exchange
from seismograd.records import Finding, Reading, Severity


class Ranks:
    """Some ranks, each with what it is given back."""

    def __init__(self, world: int) -> None:
        store = dist.HashStore()
        self.events: list[tuple[int, str]] = []
        self.all = [self._rank(store, rank, world) for rank in range(world)]

    def _rank(self, store: Any, rank: int, world: int) -> Exchange:
        return Exchange(
            "run",
            rank,
            world,
            connect=lambda: Channel("run", store=store, rank=rank, world=world),
            deliver=lambda: None,
            note=lambda kind, text: self.events.append((rank, text)),
        )

    def step(self, rank: int, step: int, **more: Any) -> None:
        self.all[rank].hear(Reading(step, {"loss": 1.0, **more.pop("scalars", {})}, rank=rank))
        told = {"kind": "ddp", "group": "", "signature": 1, "own": 0.01, "times": {"step": 0.02}, "parameters": 5}
        self.all[rank].state(step, {**told, **more})

    def close(self) -> list[Reading | Finding]:
        threads = [threading.Thread(target=each.close) for each in self.all]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return list(self.all[0].inbox)


@pytest.fixture
def ranks():
    made: list[Ranks] = []

    def make(world: int) -> Ranks:
        made.append(Ranks(world))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "seismograd-ranks"]


def test_the_first_rank_hears_of_all_steps(ranks):
    three = ranks(3)
    for step in range(4):
        for rank in range(3):
            three.step(rank, step)
    told = three.close()
    assert [each.step for each in told] == [0, 1, 2, 3]
    assert all(each.facts["ranks"]["told"] == 3 for each in told)
    assert all(not each.inbox for each in three.all[1:])


def test_findings_of_others_reach_the_first(ranks):
    two = ranks(2)
    two.all[1].found(Finding("loss-spike", Severity.WARNING, 3, "up", rank=1))
    two.all[0].found(Finding("loss-spike", Severity.WARNING, 3, "up", rank=0))
    (finding,) = two.close()
    assert (finding.id, finding.rank) == ("loss-spike", 1)


def test_of_many_bad_steps_the_first_is_told(ranks):
    two = ranks(2)
    for step in range(200):
        for rank in range(2):
            two.step(rank, step, scalars={"loss": float("nan") if step >= 50 else 1.0})
    broken = [each.step for each in two.close() if "broken" in each.facts["ranks"]]
    assert broken
    assert min(broken) == 50


def test_of_many_steps_the_same_ones_are_told_by_all(ranks):
    two = ranks(2)
    for rank in range(2):
        for step in range(1000 + 37 * rank):
            two.step(rank, step)
    told = [each.step for each in two.close()]
    assert len(told) >= 4
    assert all(step % 8 == 0 for step in told)


def test_what_was_seen_at_a_step_that_is_not_told_of_is_told_with_the_next_one(ranks):
    two = ranks(2)
    for rank in range(2):
        for step in range(1000):
            two.step(rank, step, **({"skipped": True} if (rank, step) == (1, 501) else {}))
    told = [(each.step, each.facts["ranks"].get("signs", {}).get("unstepped")) for each in two.close()]
    assert [(500 < step <= 520, who) for step, who in told if who] == [(True, [1])]


def test_a_way_that_is_closed_stays_closed_and_is_told_once():
    told: list[str] = []

    def no_way() -> Channel:
        raise RuntimeError("no way")

    broken = Exchange(
        "run",
        1,
        2,
        connect=no_way,
        deliver=lambda: None,
        note=lambda kind, text: told.append(text),
    )
    for step in range(5):
        broken.hear(Reading(step, {"loss": 1.0}, rank=1))
    broken.close()
    assert not broken.works
    assert told == ["the ranks are not compared: no way"]


def test_a_store_that_breaks_ends_the_comparison_and_nothing_else(monkeypatch):
    monkeypatch.setattr(exchanges, "CYCLE", 0.02)
    told: list[str] = []

    class Broken(Channel):
        def post(self, message: str) -> bool:
            raise RuntimeError("connection reset")

    store = dist.HashStore()
    other = Exchange(
        "run",
        1,
        2,
        connect=lambda: Broken("run", store=store, rank=1, world=2),
        deliver=lambda: None,
        note=lambda kind, text: told.append(text),
    )
    deadline = time.monotonic() + 20
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    other.hear(Reading(0, {"loss": 1.0}, rank=1))
    other.close()
    assert told == ["the ranks are not compared any more: RuntimeError: connection reset"]
    assert not other.works


def test_a_first_rank_that_is_alone_leaves_at_once(ranks, monkeypatch):
    monkeypatch.setattr(exchanges, "PATIENCE", 3600.0)
    store = dist.HashStore()
    alone = Exchange(
        "run",
        0,
        2,
        connect=lambda: Channel("run", store=store, rank=0, world=2),
        deliver=lambda: None,
        note=lambda kind, text: None,
    )
    alone.hear(Reading(0, {"loss": 1.0}))
    monkeypatch.setattr(exchanges, "LINGER", 20.0)
    closing = threading.Thread(target=alone.close)
    closing.start()
    closing.join(20)
    assert not closing.is_alive(), "nobody else is watched: there is nothing to wait for"
