"""Several ranks in one folder: each writes into a file of its own, and who reads sees one run."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seismograd.cli import app
from seismograd.records import Finding, Reading, Severity
from seismograd.server.shelf import Shelf
from seismograd.store import Recorder, Run, Store, StoreError, open_store, schema
from seismograd.store.gathering import Gathering

RUN = "20260101-101500-aaaaaa"
REPORT = {"run": {"status": "healthy"}}


class Ranks:
    """Ranks that are recorded, all in this process."""

    def __init__(self, where: object, world: int = 3, *, attempt: int = 0, run: str = RUN) -> None:
        self.asked: list[tuple[int, str]] = []
        self.said: list[str] = []
        url = schema.url_of(str(where))
        self.sinks = [
            Recorder(
                url,
                run,
                "many",
                rank=rank,
                world=world,
                attempt=attempt,
                about=lambda: {"world_size": world, "host": "here", "pid": 7},
                state=lambda: {"status": "healthy", "steps": self.step},
                on_request=self._taker(rank),
                complain=self.said.append,
            )
            for rank in range(world)
        ]
        self.step = 0

    def _taker(self, rank: int) -> Callable[..., None]:
        def take(kind: str, value: object, answer: Callable[[str], None]) -> None:
            self.asked.append((rank, kind))
            answer(f"done: {value}")

        return take

    def train(self, steps: int) -> None:
        for _ in range(steps):
            for rank, sink in enumerate(self.sinks):
                sink.write_reading(Reading(self.step, {"loss": self.step + rank / 8}, rank=rank))
            self.step += 1

    def find(self, rank: int, what: str = "made-up") -> None:
        self.sinks[rank].write_finding(Finding(what, Severity.WARNING, self.step, "made up", rank=rank))

    def tell(self, rank: int, message: str) -> None:
        self.sinks[rank].write_event({"event_type": "note", "message": message})

    def flush(self) -> None:
        assert all(sink.flush(60) for sink in self.sinks)

    def end(self) -> None:
        for sink in self.sinks:
            sink.close(REPORT)


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def one(where: object, *, read_only: bool = False) -> Iterator[Run]:
    with open_store(str(where), read_only=read_only) as store:
        (run,) = store.runs()
        yield run


def steps_of(run: Run, rank: int) -> list[int]:
    return [reading.step for reading in run.readings(rank=rank)]


def test_each_rank_has_a_file_and_who_reads_sees_one_run(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path)
    ranks.train(40)
    ranks.find(1)
    ranks.tell(2, "from the third")
    ranks.flush()
    files = sorted(path.name for path in (tmp_path / "ranks" / RUN).glob("*.db"))
    assert files == ["rank-0.db", "rank-1.db", "rank-2.db"]
    assert not (tmp_path / "seismograd.db").exists(), "nobody writes to a file of all"
    assert not list(tmp_path.rglob("*-wal")), "a log cannot be shared by machines"
    with one(tmp_path) as run:
        assert run.ranks == [0, 1, 2]
        assert (run.name, run.live, run.steps) == ("many", True, 40)
        for rank in run.ranks:
            assert run.series("loss", rank=rank)["loss"].last.tolist() == [step + rank / 8 for step in range(40)]
            assert steps_of(run, rank) == list(range(40))
        assert len(list(run.readings())) == 120
        assert [finding.rank for finding in run.findings()] == [1]
        assert [event["rank"] for event in run.events(types="note")] == [2]
        assert run.series("loss", rank=9) == {}, "a rank that is not there"
        ranks.train(5)
        ranks.tell(0, "more")
        ranks.flush()
        assert [event["message"] for event in run.events(types="note")] == ["from the third", "more"]
        assert run.refresh().reach(2) == 44
        ranks.end()
        assert run.refresh().ended is not None
        assert [each["state"] for each in run.per_rank()] == ["ended"] * 3
        assert {each["host"] for each in run.per_rank()} == {"here"}
    assert ranks.said == []


def test_together_with_runs_in_the_store_s_own_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        open_store(tmp_path)
    ranks = Ranks(tmp_path)
    ranks.train(5)
    ranks.flush()
    with open_store(tmp_path) as store:
        assert [run.id for run in store.runs()] == [RUN]
        single = Recorder(schema.url_of(tmp_path), "alone", "alone", complain=pytest.fail)
        single.write_reading(Reading(0, {"loss": 1.0}))
        single.write_finding(Finding("made-up", Severity.INFO, 0, "made up"))
        single.close(REPORT)
        assert {run.id for run in store.runs()} == {RUN, "alone"}, "a file that came later is read too"
        assert store.count() == 2
        assert [run.id for run in store.live()] == [RUN]
        ranks.find(2)
        ranks.flush()
        assert store.severities() == {RUN: {"warning": 1}, "alone": {"info": 1}}
        assert store.run("alone").report()["run"]["status"] == "healthy"
        assert len(store.runs(limit=1)) == 1
    ranks.end()


def test_ranks_that_come_after_a_store_was_opened(tmp_path: Path) -> None:
    single = Recorder(schema.url_of(tmp_path), "alone", "alone", complain=pytest.fail)
    single.write_reading(Reading(0, {"loss": 1.0}))
    single.close(REPORT)
    shelf = Shelf(tmp_path / "elsewhere")
    assert shelf.runs() == []
    with open_store(tmp_path) as store:
        assert len(store.runs()) == 1
        for where in (tmp_path, tmp_path / "elsewhere"):
            ranks = Ranks(where, 2)
            ranks.train(3)
            ranks.end()
        assert len(store.runs()) == 2
    assert [run.id for run in shelf.runs()] == [RUN]
    shelf.close()


def test_requests_reach_every_rank_and_the_first_answers(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path)
    ranks.train(3)
    ranks.flush()
    with one(tmp_path) as run:
        number = run.ask("level", "basic")
        assert [(each["id"], each["kind"], each["taken"]) for each in run.requests()] == [(number, "level", None)]
        until(lambda: run.requests()[0]["answer"])
        until(lambda: len(ranks.asked) == 3)
        assert sorted(ranks.asked) == [(rank, "level") for rank in range(3)]
        assert run.requests()[0]["answer"] == "done: basic"
        assert run.requests()[0]["taken"] is not None
        assert run.ask("stop") == number + 1
        until(lambda: len(ranks.asked) == 6)
    with one(tmp_path, read_only=True) as run, pytest.raises(StoreError, match="read only"):
        run.ask("stop")
    ranks.end()


def test_a_run_is_deleted_with_its_files(tmp_path: Path) -> None:
    for run in (RUN, "20260101-101500-bbbbbb"):
        ranks = Ranks(tmp_path, 2, run=run)
        ranks.train(3)
        ranks.end()
    with open_store(tmp_path, read_only=True) as store, pytest.raises(StoreError, match="read only"):
        store.delete(RUN)
    with open_store(tmp_path) as store:
        store.delete(RUN)
        assert [run.id for run in store.runs()] == ["20260101-101500-bbbbbb"]
    assert [path.name for path in (tmp_path / "ranks").iterdir()] == ["20260101-101500-bbbbbb"]


def test_prune_gives_the_space_back(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.train(50)
    ranks.end()
    done = CliRunner().invoke(app, ["prune", "--keep", "0", "--yes", "--json", "--store", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert not list((tmp_path / "ranks").iterdir())
    assert '"freed": 0' not in done.output


@pytest.mark.parametrize("how", ["nonsense", "cut short", "empty", "damaged inside"])
def test_a_damaged_file_is_left_out_and_the_others_are_read(tmp_path: Path, how: str) -> None:
    ranks = Ranks(tmp_path)
    ranks.train(600)
    ranks.end()
    file = tmp_path / "ranks" / RUN / "rank-1.db"
    whole = file.read_bytes()
    if how == "nonsense":
        file.write_bytes(b"my own notes " * 1000)
    elif how == "cut short":
        file.write_bytes(whole[: len(whole) // 3])
    elif how == "empty":
        file.write_bytes(b"")
    else:
        name = schema.segments.name
        with sqlite3.connect(file) as connection:
            (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
            (size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.close()
        start = (page - 1) * size
        file.write_bytes(whole[:start] + b"\xff" * size + whole[start + size :])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with one(tmp_path) as run:
            for rank in (0, 2):
                assert steps_of(run, rank) == list(range(600))
            assert run.series("loss", rank=1) == {}
            assert len(list(run.readings())) == 1200
            run.refresh()
    assert all("rank-1.db" in str(each.message) or "rank 1" in str(each.message) for each in said)
    assert bool(said) == (how != "empty"), "a file that is being made is no news"
    if how == "nonsense":
        assert len(said) == 1


def test_what_a_killed_rank_left_half_written_is_taken_back(tmp_path: Path) -> None:
    """Also by one who may not change anything, in a copy."""
    ranks = Ranks(tmp_path / "store", 2)
    ranks.train(20)
    ranks.end()
    file = tmp_path / "store" / "ranks" / RUN / "rank-1.db"
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode=TRUNCATE")
    connection.execute("PRAGMA cache_size=1")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        f"UPDATE {schema.segments.name} SET scalars = zeroblob(200000)"
    )  # goes to the disk before the end
    for each in (file, file.with_name("rank-1.db-journal")):
        shutil.copyfile(each, tmp_path / each.name)  # as it would be after kill -9
    connection.execute("ROLLBACK")
    connection.close()
    for each in ("rank-1.db", "rank-1.db-journal"):
        shutil.copyfile(tmp_path / each, file.with_name(each))
    before = file.read_bytes()
    with one(tmp_path / "store", read_only=True) as run:
        assert steps_of(run, 1) == list(range(20))
    assert file.read_bytes() == before, "who only reads changes nothing"
    with one(tmp_path / "store") as run:
        assert steps_of(run, 1) == list(range(20))
    assert file.read_bytes() != before


def test_from_a_disk_that_cannot_be_written(small_disk: Path) -> None:
    ranks = Ranks(small_disk / "store", 2)
    ranks.train(20)
    ranks.end()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for read_only in (False, True):
        with one(small_disk / "store", read_only=read_only) as run:
            assert steps_of(run, 1) == list(range(20))
            with pytest.raises(StoreError):
                run.ask("stop")


def test_only_what_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(tmp_path, 4)
    ranks.train(3)
    ranks.end()
    read: list[str] = []
    told = Gathering._told

    def noted(self: Gathering, file: Path, source: object) -> object:
        read.append(file.name)
        return told(self, file, source)  # type: ignore[arg-type]

    monkeypatch.setattr(Gathering, "_told", noted)
    with open_store(tmp_path) as store:
        run = store.run()
        assert len(read) == 4
        read.clear()
        time.sleep(0.1)
        run.refresh().findings()
        assert read == []
        with sqlite3.connect(tmp_path / "ranks" / RUN / "rank-2.db") as connection:
            connection.execute(f"UPDATE {schema.ranks.name} SET bytes = 12345")
        connection.close()
        until(lambda: store.run()._ranks[2]["bytes"] == 12345)
        assert read == ["rank-2.db"]


def test_the_limit_of_a_run_holds(tmp_path: Path) -> None:
    """In two attempts as in one."""
    for attempt in range(2):
        sink = Recorder(
            schema.url_of(tmp_path), RUN, "many", rank=1, world=2, attempt=attempt, limit=1 << 20, complain=pytest.fail
        )
        for step in range(30_000):
            sink.write_reading(Reading(step, {f"x/{at}": hash((step, at)) % 10_007 / 7 for at in range(6)}, rank=1))
            if step % 2000 == 1999:
                assert sink.flush(60)
        sink.close(REPORT)
        with one(tmp_path) as run:
            assert run.bytes <= 1.1 * (1 << 20)
            curve = run.series("x/0", rank=1)["x/0"]
            assert int(curve.first[0]) == 0
            assert int(curve.steps[-1]) == 30_000 * (attempt + 1) - 1
            assert (curve.first[1:] <= curve.steps[:-1] + 1).all(), "no step was forgotten, though many were thinned"
            assert 0 <= int(curve.count.sum()) - 30_000 * (attempt + 1) <= 64, "but at the edge of two resolutions"


def test_stores_that_are_closed_leave_nothing_behind(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.train(3)
    ranks.end()
    store = Store(tmp_path)
    store.runs()
    assert store._gathering is not None
    place = store._gathering.file.parent
    assert place.exists()
    store.close()
    assert not place.exists()
