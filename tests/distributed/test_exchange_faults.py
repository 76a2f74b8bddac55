"""One rank's part in the exchange, by itself."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import seismograd
from seismograd import endings
from seismograd.distributed import exchange as exchanges
from seismograd.distributed.channel import Channel
from seismograd.distributed.exchange import FINDINGS, Exchange
from seismograd.distributed.stalls import Stalls
from seismograd.records import Finding, Severity, Where


def until(found) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if found():
            return True
        time.sleep(0.01)
    return False


def finding(series: int) -> Finding:
    return Finding(
        id="loss-spike",
        severity=Severity.WARNING,
        step=1,
        rank=1,
        where=Where(),
        message="it went up",
        evidence={"series": series},
    )


@pytest.fixture
def opened(monkeypatch):
    monkeypatch.setattr(exchanges, "CYCLE", 0.02)
    monkeypatch.setattr(exchanges, "LINGER", 0.1)
    notes: list[str] = []
    made: list[Exchange] = []

    def open_(rank: int, store: Any, **more: Any) -> tuple[Exchange, list[str]]:
        made.append(
            Exchange(
                "run",
                rank,
                2,
                connect=lambda: Channel("run", store=store, rank=rank, world=2),
                deliver=lambda: None,
                note=lambda kind, text: notes.append(text),
                **more,
            )
        )
        return made[-1], notes

    yield open_
    for each in made:
        each.close()
        assert not each._thread.is_alive()


def test_what_the_leader_is_not_told_of_is_left_to_nobody(opened):
    rank, _ = opened(1, dist.HashStore())
    assert until(lambda: rank.works)
    for series in range(FINDINGS + 1):
        for _ in range(3):  # again, as it goes on
            rank.found(finding(series))
    assert rank.tells(finding(0))
    assert rank.tells(finding(FINDINGS - 1))
    assert not rank.tells(finding(FINDINGS))
    assert not rank.tells(finding(-1))


def test_a_leader_that_is_not_there_tells_nothing(opened, monkeypatch):
    monkeypatch.setattr(exchanges, "SILENT", 0.2)
    rank, _ = opened(1, dist.HashStore())
    rank.found(finding(0))
    assert until(lambda: not rank.tells(finding(0)) and rank.works)


def test_findings_reach_the_leader_as_they_are_by_then(opened):
    store = dist.HashStore()
    leader, _ = opened(0, store)
    rank, _ = opened(1, store)
    for series in range(40):
        rank.found(finding(series))
    assert until(lambda: len(leader.inbox) >= 40)
    assert {each.evidence["series"] for each in leader.inbox if isinstance(each, Finding)} == set(range(40))
    assert rank.tells(finding(0))


def test_looking_for_hangs_may_fail(opened):
    def fails() -> int:
        raise RuntimeError("no loop")

    rank, notes = opened(1, dist.HashStore(), stalls=Stalls(fails, lambda: 0, lambda: 0.1))
    assert until(lambda: any("not looked for" in each or "not compared" in each for each in notes))
    assert rank._thread.is_alive()


def test_one_may_leave_without_a_wait(opened):
    rank, _ = opened(1, dist.HashStore())
    began = time.monotonic()
    rank.leave()
    assert time.monotonic() - began < 0.05
    assert until(lambda: not rank._thread.is_alive())


def test_ranks_that_meet_after_the_watch_was_opened_are_compared():
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with seismograd.watch(model, optimizer, store=False, sinks=[]) as watch:
        assert watch.exchange is None
        dist.init_process_group("fake", rank=0, world_size=2, store=fake.FakeStore())
        try:
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
            exchange = watch.exchange
            assert exchange is not None
            assert exchange.world == 2
            assert watch.governor.together is not None
        finally:
            dist.destroy_process_group()
    assert not exchange._thread.is_alive()
    assert endings._wakeup is None


@pytest.mark.parametrize("failed", [True, False])
def test_a_rank_that_is_about_to_be_started_again_hurries(monkeypatch, failed):
    for name, value in (("RANK", 0), ("WORLD_SIZE", 2), ("LOCAL_WORLD_SIZE", 1), ("TORCHELASTIC_MAX_RESTARTS", 1)):
        monkeypatch.setenv(name, str(value))
    model = nn.Linear(2, 1)
    with seismograd.watch(model, torch.optim.SGD(model.parameters()), ranks=False, store=False) as watch:
        watch.ended({"code": int(failed), "exception": None}, crashed=False)
        assert watch.hurries is failed


def test_who_hurries_does_not_wait_for_a_store_that_is_stuck():
    answers = threading.Event()
    stuck = Exchange("run", 0, 2, connect=answers.wait, deliver=lambda: None, note=lambda *_: None)
    stuck.close(hurries=True)
    assert stuck._thread.is_alive(), "it was waited for"
    answers.set()
