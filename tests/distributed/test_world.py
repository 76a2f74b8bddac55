"""Who a process is among others, as launchers say it, or torch."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from seismograd import records
from seismograd.distributed import world

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
ELASTIC = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "SLURM_NNODES",
    "TORCHELASTIC_MAX_RESTARTS",
)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *ELASTIC):
        monkeypatch.delenv(name, raising=False)


def _told(monkeypatch: pytest.MonkeyPatch, **told: Any) -> None:
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))


def test_alone() -> None:
    assert (world.rank(), world.world_size(), world.attempt(), world.spans_machines()) == (0, 1, 0, False)
    assert world.run_id() != world.run_id()
    assert world.place().pid == os.getpid()


def test_as_the_launcher_says(monkeypatch: pytest.MonkeyPatch) -> None:
    _told(monkeypatch, RANK=3, WORLD_SIZE=4, LOCAL_RANK=3, LOCAL_WORLD_SIZE=4, TORCHELASTIC_RESTART_COUNT=2)
    found = world.place()
    assert (found.rank, found.world, found.local_rank, found.local_world, found.attempt) == (3, 4, 3, 4, 2)
    assert not world.spans_machines()
    _told(monkeypatch, LOCAL_WORLD_SIZE=2)
    assert world.spans_machines()
    _told(monkeypatch, LOCAL_WORLD_SIZE=4, GROUP_WORLD_SIZE=2)
    assert world.spans_machines()
    _told(monkeypatch, RANK="much")
    assert world.rank() == 0


def test_ranks_of_several_machines_are_started_again_while_restarts_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    _told(monkeypatch, RANK=0, WORLD_SIZE=2, LOCAL_WORLD_SIZE=1, TORCHELASTIC_MAX_RESTARTS=1)
    assert records.starts_again()
    _told(monkeypatch, TORCHELASTIC_RESTART_COUNT=1)
    assert not records.starts_again(), "it was the last"
    _told(monkeypatch, TORCHELASTIC_RESTART_COUNT=0, LOCAL_WORLD_SIZE=2)
    assert not records.starts_again(), "one machine"


def test_as_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mp.spawn`: nobody says it but the process group."""
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 2, get_world_size=lambda: 3
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)  # type: ignore[arg-type]
    assert (records.rank(), records.world_size()) == (2, 3)
    group.is_initialized = lambda: False
    assert (records.rank(), records.world_size()) == (0, 1)


def _id(**told: Any) -> str:
    """The id that another process of ours finds; all of them have the same parent."""
    environment = {**os.environ, **{name: str(value) for name, value in told.items()}}
    program = "from seismograd.distributed import world; print(world.run_id())"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_elastic_launcher_s_attempts_are_one_run() -> None:
    launch = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "here", "TORCHELASTIC_RUN_ID": "a"}
    first = _id(**launch, RANK=0, MASTER_PORT=1)
    assert _id(**launch, RANK=1, MASTER_PORT=1) == first
    assert _id(**launch, RANK=1, MASTER_PORT=2, TORCHELASTIC_RESTART_COUNT=1) == first, "the port may change"
    assert _id(**{**launch, "TORCHELASTIC_RUN_ID": "b"}, RANK=0, MASTER_PORT=1) != first
    assert _id(**{**launch, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1}, RANK=0) == first, "fewer are left"


def test_several_machines_without_a_store() -> None:
    """What all are told has to do."""
    launch = {"WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "GROUP_WORLD_SIZE": 2, "MASTER_ADDR": "a", "MASTER_PORT": 5}
    first = _id(**launch, RANK=0, TORCHELASTIC_RUN_ID="job")
    assert _id(**launch, RANK=3, TORCHELASTIC_RUN_ID="job") == first
    assert _id(**{**launch, "MASTER_PORT": 6}, RANK=3, TORCHELASTIC_RUN_ID="job", TORCHELASTIC_RESTART_COUNT=1) == first
    assert _id(**launch, RANK=0, TORCHELASTIC_RUN_ID="none") != _id(
        **{**launch, "MASTER_PORT": 6}, RANK=0, TORCHELASTIC_RUN_ID="none"
    )


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> Any:
        raise RuntimeError("timed out")

    monkeypatch.setattr(world, "store", silent)
    _told(monkeypatch, RANK=1, WORLD_SIZE=4, LOCAL_WORLD_SIZE=2, GROUP_WORLD_SIZE=2, TORCHELASTIC_RUN_ID="job")
    assert world.run_id().count("-") == 2


class Kept:
    """A key-value store."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def wait(self, keys: list[str], _: Any) -> None:
        if keys[0] not in self.kept:
            raise RuntimeError("timed out")

    def compare_set(self, key: str, _: str, value: str) -> bytes:
        return self.kept.setdefault(key, value).encode()


def test_over_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rank says it; another one, if it does not come."""
    found = Kept()
    monkeypatch.setattr(world, "store", lambda: found)
    _told(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_ADDR="a", MASTER_PORT=1)
    first = world.run_id()
    monkeypatch.setattr(world, "_named", iter(range(100, 200)))
    _told(monkeypatch, RANK=1)
    second = world.run_id()
    assert first in found.kept.values()
    assert second in found.kept.values()
    assert first != second
    monkeypatch.setattr(world, "_named", iter(range(100, 200)))
    _told(monkeypatch, RANK=0)
    assert world.run_id() == second


@pytest.mark.parametrize(("launchers", "same"), [("True", False), ("False", True)])
def test_two_launches_on_several_machines_are_two_runs(monkeypatch, launchers: str, same: bool) -> None:
    """The launcher's store is a new one in each launch; that of the ranks is in each attempt, and tells nothing."""
    launch = {"WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "GROUP_WORLD_SIZE": 2, "MASTER_ADDR": "a", "MASTER_PORT": 29500}
    _told(monkeypatch, **launch, TORCHELASTIC_RUN_ID="none", TORCHELASTIC_USE_AGENT_STORE=launchers)

    def named(found: Kept, **told: Any) -> str:
        monkeypatch.setattr(world, "store", lambda: found)
        monkeypatch.setattr(world, "_named", iter([0]))
        monkeypatch.setattr(records, "_made", iter([0]))
        _told(monkeypatch, **told)
        return world.run_id()

    one, other = Kept(), Kept()
    first = named(one, RANK=0)
    assert named(one, RANK=3) == first
    assert named(one, RANK=0, TORCHELASTIC_RESTART_COUNT=1) == first, "an attempt"
    assert (named(other, RANK=0, TORCHELASTIC_RESTART_COUNT=0) == first) is same
