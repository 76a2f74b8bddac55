"""The side channel: what one rank says, the others hear; nobody waits."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from seismograd.distributed.channel import DEPTH, Channel, NoChannelError, is_needed


@pytest.fixture
def both():
    store = dist.HashStore()
    return [Channel("run", store=store, rank=rank, world=2) for rank in range(2)]


def test_the_leader_collects_in_order_and_once(both):
    leader, other = both
    assert leader.collect(1) == []
    assert other.post("one")
    assert other.post("two")
    assert leader.collect(1) == ["one", "two"]
    assert leader.collect(1) == []


def test_nothing_piles_up_where_nobody_listens(both):
    leader, other = both
    assert [other.post(str(number)) for number in range(DEPTH + 3)] == [True] * DEPTH + [False] * 3
    assert leader.collect(1) == [str(number) for number in range(DEPTH)]
    assert other.post("on")
    assert leader.collect(1) == ["on"]


def test_a_question_is_heard_once_and_only_the_newest(both):
    leader, other = both
    assert other.asked() is None
    leader.ask("first")
    leader.ask("second one")
    assert other.asked() == "second one"
    assert other.asked() is None


def test_signs_of_life(both):
    leader, other = both
    assert leader.beats(range(2)) == {}
    other.beat("1")
    other.beat("2")
    assert leader.beats(range(2)) == {1: "2"}


def test_runs_do_not_hear_each_other():
    store = dist.HashStore()
    one, other = (Channel(name, store=store, rank=1, world=2) for name in ("a", "b"))
    one.post("x")
    assert Channel("b", store=store, rank=0, world=2).collect(1) == []
    assert other.beats([1]) == {}


def test_alone_there_is_nobody_to_talk_to(tmp_path):
    assert not is_needed()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        assert not is_needed()
        with pytest.raises(NoChannelError, match="FileStore"):
            Channel("run")
    finally:
        dist.destroy_process_group()
