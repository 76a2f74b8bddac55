"""Ranks that decide together: whatever comes of a round is the same for all, and nobody waits for who is gone."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

from seismograd.recovery import agreement
from seismograd.recovery.agreement import Agreement, NoAgreementError


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> tuple[Agreement, Agreement]:
    monkeypatch.setattr(agreement, "LOOK", 0.02)
    store = dist.HashStore()
    first, second = (Agreement(connect=lambda: store, rank=rank, world=2) for rank in range(2))
    return first, second


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each of them returns or raises, all being called at the same time."""
    results: list[Any] = [None] * len(calls)

    def call(at: int) -> None:
        try:
            results[at] = calls[at]()
        except NoAgreementError as error:
            results[at] = error

    threads = [threading.Thread(target=call, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def test_everyone_hears_what_each_tells(two: tuple[Agreement, Agreement]) -> None:
    first, second = two
    for number in range(5):
        heard = at_once(partial(first.share, [number, "a"]), partial(second.share, [number, "b"]))
        assert heard == [[[number, "a"], [number, "b"]]] * 2
    assert at_once(partial(first.share, {"a": 1}), partial(second.share, {"a": 1})) == [[{"a": 1}, {"a": 1}]] * 2


def test_one_that_gives_up_too_late_finds_what_was_decided(two: tuple[Agreement, Agreement]) -> None:
    first, second = two
    at_once(lambda: first.share(1), lambda: second.share(2))
    at_once(lambda: first.share(3), lambda: second.share(3))
    first._round -= 1
    assert first._given_up("nobody came") == [3, 3]


def test_one_that_has_left_is_not_waited_for(two: tuple[Agreement, Agreement]) -> None:
    first, second = two
    at_once(lambda: first.share(1), lambda: second.share(2))
    second.leave()
    with pytest.raises(NoAgreementError, match="has ended its watch"):
        first.share(3)


def test_one_that_was_given_up_finds_that_out(
    two: tuple[Agreement, Agreement], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    at_once(lambda: first.share(1), lambda: second.share(2))
    monkeypatch.setattr(agreement, "LATER", 0.1)
    with pytest.raises(NoAgreementError, match="not all ranks"):
        first.share(3)
    with pytest.raises(NoAgreementError, match="not all ranks"):
        second.share(4)


def test_one_that_is_gone_is_not_waited_for(two: tuple[Agreement, Agreement], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = agreement._who()
    there = [*here[:2], other.pid, agreement.psutil.Process(other.pid).create_time()]
    at_once(lambda: first.share(1), lambda: second.share(2))
    first._who = [here, there]
    assert first._hopeless(0.0) is None
    other.kill()
    other.wait()
    with pytest.raises(NoAgreementError, match="rank 1 is gone"):
        first.share(3)
    other.stdin.close()  # type: ignore[union-attr]


def test_a_store_that_is_stuck_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "ANSWER", 0.1)
    over = threading.Event()

    class Stuck:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: over.wait(60)

    alone = Agreement(connect=Stuck, rank=0, world=2)
    began = time.monotonic()
    try:
        with pytest.raises(NoAgreementError, match="does not answer"):
            alone.share(1)
        assert time.monotonic() - began < 30
    finally:
        over.set()


def test_a_store_that_is_gone_is_no_error_but_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Any:
        raise ConnectionError("reset by peer")

    with pytest.raises(NoAgreementError, match="is gone"):
        Agreement(connect=gone, rank=0, world=2).share(1)


def test_where_ranks_may_run_out_of_batches_nobody_votes() -> None:
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", rank=0, world_size=2, store=fake.FakeStore())
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
        one = Agreement(connect=dist.HashStore)
        with model.join(), pytest.raises(NoAgreementError, match="run out of batches"):
            one.share(1)
    finally:
        dist.destroy_process_group()
