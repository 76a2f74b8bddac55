"""Ranks under real launchers: attempts, several machines, ranks that are killed, a store that goes away."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seismograd.store import open_store

from .conftest import Postgres
from .test_ranks import one, steps_of, until

RANK = Path(__file__).with_name("rank.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

pytestmark = pytest.mark.slow


def _launched(*arguments: str, options: tuple[str, ...] = (), ranks: int = 2) -> subprocess.Popen[str]:
    command = [*TORCHRUN, "--nproc-per-node", str(ranks), *(options or ("--standalone",)), str(RANK), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    _started.append(process)
    return process


_started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.terminate()  # which ends its ranks too
            process.communicate(timeout=60)


def _over(process: subprocess.Popen[str], code: int = 0) -> tuple[dict[int, tuple[str, str]], str]:
    """What each rank said at its end: the run, and what it learnt."""
    told, errors = process.communicate(timeout=180)
    assert (process.returncode != 0) == bool(code), errors[-3000:]
    return {int(rank): (run, sum_) for rank, run, sum_ in re.findall(r"DONE (\d+) (\S+) (\S+)", told)}, errors


def _said(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if "cannot be recorded" in line]


def test_ranks_that_are_killed_and_started_again_are_one_run(where: str) -> None:
    options = ("--standalone", "--max-restarts", "2")
    told, _ = _over(_launched(where, "40", "kill:1:20", options=options))
    assert sorted(told) == [0, 1]
    with one(where) as run:
        assert {name for name, _ in told.values()} == {run.id}
        assert run.ranks == [0, 1]
        assert run.attempt == 1
        first = run.attempts[1].first
        assert first in (20, 21), "rank 0 may have read the step in which the other was killed"
        for rank in run.ranks:
            steps = [step for step in steps_of(run, rank) if step >= first]
            assert sorted(set(steps)) == list(range(first, first + 40))
            assert sorted(set(steps_of(run, rank)))[:20] == list(range(20))
        assert 1 in run.attempts[1].before["lost"]
        assert run.ended is not None
        assert [each["state"] for each in run.per_rank()] == ["ended", "ended"]
        assert len(run.events(types="attempt")) == 1


def test_a_killed_rank_is_lost_and_the_others_are_as_they_ended(where: str) -> None:
    _over(_launched(where, "40", "kill:1:20"), code=1)
    time.sleep(0.1)
    with one(where) as run:
        assert sorted(set(steps_of(run, 1))) == list(range(20)), "the record is whole up to its end"
        assert sorted(set(steps_of(run, 0)))[:20] == list(range(20))
        until(lambda: [each["state"] for each in run.refresh().per_rank()] == ["ended", "lost"])
        assert run.ended is None


@pytest.mark.sample(3)
@pytest.mark.parametrize("when", ["", "--early"])
def test_ranks_of_two_machines_find_the_same_run(where: str, when: str) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}")
    more = [when] if when else []
    agents = [_launched(where, "30", *more, options=(*place, "--local-addr", "127.0.0.1")) for _ in range(2)]
    told = {rank: run for agent in agents for rank, run in _over(agent)[0].items()}
    assert sorted(told) == [0, 1, 2, 3]
    with one(where) as run:
        assert {name for name, _ in told.values()} == {run.id}
        assert run.ranks == [0, 1, 2, 3]
        assert run.attempt == 0
        assert [sorted(set(steps_of(run, rank))) for rank in run.ranks] == [list(range(30))] * 4


def test_ranks_that_the_program_makes_itself(tmp_path: Path) -> None:
    """`mp.spawn`: there is no RANK; and twice from one parent are two runs."""
    program = tmp_path / "spawned.py"
    program.write_text(SPAWNED)
    command = [sys.executable, str(program), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    with open_store(tmp_path / "store") as store:
        runs = store.runs()
        assert [run.ranks for run in runs] == [[0, 1], [0, 1]]
        assert [run.attempt for run in runs] == [0, 0]
        assert sorted(set(steps_of(runs[0], 1))) == list(range(5))


SPAWNED = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank, where, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    import seismograd as sg
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with sg.watch(model, optimizer, store=where, sinks=[]):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    dist.barrier()
    os._exit(0)

if __name__ == "__main__":
    import socket
    for _ in range(2):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        mp.spawn(train, (sys.argv[1], port), nprocs=2)
"""


def test_a_server_that_is_stopped_and_started_again(database: str, postgres: Postgres, tmp_path: Path) -> None:
    go = tmp_path / "go"
    process = _launched(database, "60", f"pause:{go}:30")
    _until_there(database, 29)
    postgres.stop()
    time.sleep(1.5)
    go.touch()
    time.sleep(1.0)
    postgres.start()
    told, _ = _over(process)
    assert len({learnt for _, learnt in told.values()}) == 1
    with one(database) as run:
        for rank in run.ranks:
            assert sorted(set(steps_of(run, rank))) == list(range(60))
        assert run.ended is not None


def _until_there(where: str, step: int) -> None:
    def is_there() -> bool:
        try:
            with one(where) as run:
                return run.reach(0) >= step and run.reach(1) >= step
        except ValueError:
            return False

    until(is_there)


def _moved(one: Path, other: Path) -> None:
    one.rename(other)


def _away(store: Path) -> Callable[[], None]:
    store.rename(store.with_name("away"))
    return lambda: _moved(store.with_name("away"), store)


def _full(store: Path) -> Callable[[], None]:
    ballast = store.with_name("ballast")
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(b"0" * 4_000_000)
    return ballast.unlink


@pytest.mark.parametrize("how", [_away, _full], ids=["renamed", "full"])
def test_a_folder_that_is_away_for_a_while(small_disk: Path, how: Callable[[Path], Callable[[], None]]) -> None:
    store, go = small_disk / "store", small_disk.with_name("go")
    plain = _over(_launched(str(small_disk.with_name("other")), "60"))[0]
    process = _launched(str(store), "60", f"pause:{go}:30")
    _until_there(str(store), 29)
    back = how(store)
    time.sleep(1.5)
    go.touch()
    time.sleep(1.0)
    back()
    told, errors = _over(process)
    assert {learnt for _, learnt in told.values()} == {learnt for _, learnt in plain.values()}
    assert len(_said(errors)) <= 2, "once by each rank"
    with one(store) as run:
        for rank in run.ranks:
            assert sorted(set(steps_of(run, rank))) == list(range(60))
        assert run.ended is not None


def test_a_folder_that_is_gone_for_good(tmp_path: Path) -> None:
    store, go = tmp_path / "store", tmp_path / "go"
    process = _launched(str(store), "60", f"pause:{go}:30")
    _until_there(str(store), 29)
    store.rename(tmp_path / "elsewhere")
    go.touch()
    told, errors = _over(process)
    assert len(told) == 2
    assert not store.exists(), "it is not made anew: it may come back"
    assert 1 <= len(_said(errors)) <= 2
    with one(tmp_path / "elsewhere") as run:
        assert sorted(set(steps_of(run, 0)))[:30] == list(range(30))
