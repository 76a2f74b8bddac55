"""The disk is full, the folder read-only, the server gone, the file deleted: training goes on, and the record too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from seismograd.records import Finding, Reading, Severity, TensorStats
from seismograd.store import Recorder, Run, open_store
from seismograd.store import recorder as recorders
from seismograd.store import writing as writings
from seismograd.store.schema import url_of

REPORT = {"run": {"status": "healthy"}}


class Writer:
    """A recorder under trial, and what it warned of."""

    def __init__(self, where: str) -> None:
        self.where, self.warnings, self.step = where, list[str](), 0
        self.sink = Recorder(url_of(where), "one", "a run", complain=self.warnings.append)

    def write(self, number: int, *, size: int = 1) -> None:
        names = tuple(f"layer.{at}" for at in range(size))
        for _ in range(number):
            noise = [float(hash((self.step, at)) % 1_000_003) / 7 for at in range(size)]
            stats = {"gradient": TensorStats(names, {"norm": noise})}
            self.sink.write_reading(Reading(self.step, {"loss": float(self.step)}, stats))
            self.step += 1

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def run(self) -> Run:
        return open_store(self.where).run("one")

    def is_whole(self, run: Run) -> bool:
        """Whether every reading is there, once."""
        return [reading.step for reading in run.readings()] == list(range(self.step))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "SHORTEST_WAIT", 0.05)
    monkeypatch.setattr(recorders, "LONGEST_WAIT", 0.2)
    monkeypatch.setattr(recorders, "LITTLE_PATIENCE", 0.5)


def _resumed(writer: Writer) -> None:
    """The trouble is over: everything is there, it was warned of once, and the run itself tells of it."""
    writer.until(lambda: writer.sink.trouble is None)
    writer.write(5)
    assert writer.sink.flush(60)
    writer.sink.close(REPORT)
    run = writer.run()
    assert writer.is_whole(run)
    assert len(writer.warnings) == 1
    assert "the run cannot be recorded at present, training goes on" in writer.warnings[0]
    told = [event["event_type"] for event in run.events()]
    assert "store_unavailable" in told
    assert "store_resumed" in told
    assert run.ended is not None
    assert writer.sink.told()["missing"] is None


def test_a_disk_that_is_full_for_a_while(small_disk: Path) -> None:
    writer = Writer(str(small_disk / "store"))
    writer.write(5)
    assert writer.sink.flush(60)
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(b"0" * 4_000_000)
    writer.write(300, size=500)
    writer.until(lambda: writer.sink.trouble is not None)
    assert "full" in writer.sink.told()["missing"]
    ballast.unlink()
    _resumed(writer)


def test_a_disk_that_is_read_only_for_a_while(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    writer = Writer(str(small_disk / "store"))
    writer.write(5)
    writer.until(lambda: writer.sink.trouble is not None)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    _resumed(writer)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert writer.is_whole(writer.run()), "who only reads can do so here too"


LIMITED = """
import json, resource, sys, time
from seismograd.records import Reading, TensorStats
from seismograd.store import Recorder, open_store
from seismograd.store.schema import url_of
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
warnings = []
sink = Recorder(url_of(sys.argv[1]), "one", "a run", complain=warnings.append)
for step in range(200):
    noise = [float(hash((step, at)) % 1_000_003) / 7 for at in range(500)]
    names = tuple(map(str, range(500)))
    sink.write_reading(Reading(step, {"loss": float(step)}, {"gradient": TensorStats(names, {"norm": noise})}))
    time.sleep(0.002)
while sink.trouble is None:
    sink.flush(1)
missing = sink.told()["missing"]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
deadline = time.monotonic() + 60
while not sink.flush(5) and time.monotonic() < deadline:
    pass
sink.close({"run": {}})
steps = [reading.step for reading in open_store(sys.argv[1]).run("one").readings()]
print(json.dumps({"warnings": warnings, "missing": missing, "whole": steps == list(range(200))}))
"""


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", LIMITED, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["warnings"]) == 1
    assert told["missing"].startswith("it cannot be written at present: ")
    assert told["whole"]


def test_a_server_that_is_restarted(postgres: Any, database: str) -> None:
    writer = Writer(database)
    writer.write(600)
    assert writer.sink.flush(60)
    postgres.stop()
    writer.write(700)
    writer.until(lambda: writer.sink.trouble is not None)
    postgres.start()
    _resumed(writer)


def test_a_server_that_never_comes(tmp_path: Path) -> None:
    writer = Writer(f"postgresql://somebody:sesame@/runs?host={tmp_path}")
    writer.write(10)
    writer.until(lambda: writer.sink.trouble is not None)
    assert not writer.sink.flush(30)
    writer.sink.close(REPORT)
    missing = writer.sink.told()["missing"]
    assert "the last 10 readings and the end of the run are not in the store" in missing
    assert len(writer.warnings) == 1
    assert "sesame" not in json.dumps([writer.sink.told(), writer.warnings])


def test_more_connections_than_the_server_has(postgres: Any, database: str) -> None:
    name = url_of(database).database
    postgres.execute("create role few login connection limit 1")
    try:
        postgres.execute(f"grant all on database {name} to few")
        postgres.execute("grant all on schema public to few", database=name)
        address = postgres.url(name, user="few")
        first, second = Writer(address), Writer(address)
        second.sink.run = "two"
        first.write(5)
        assert first.sink.flush(60)
        second.write(5)
        time.sleep(0.3)
        first.sink.close(REPORT)
        assert second.sink.flush(60), "it has waited for its turn"
        second.sink.close(REPORT)
        assert (first.warnings, second.warnings) == ([], [])
    finally:
        postgres.execute(f"drop owned by few; revoke all on database {name} from few", database=name)
        postgres.execute("drop role few")


def test_a_file_that_is_deleted(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path / "store"))
    writer.write(520)
    writer.sink.write_finding(Finding("nonfinite-loss", Severity.CRITICAL, 3, "the loss is NaN"))
    assert writer.sink.flush(60)
    shutil.rmtree(tmp_path / "store")
    writer.write(100)
    assert writer.sink.flush(60)
    writer.write(1000)
    assert writer.sink.flush(60)
    writer.sink.close(REPORT)
    run = writer.run()
    assert [reading.step for reading in run.readings()] == list(range(512, writer.step)), "what was in memory is there"
    assert [finding.id for finding in run.findings()] == ["nonfinite-loss"]
    assert run.names() == ["loss"]
    assert "what it had is gone" in writer.sink.told()["missing"]
    assert run.events(types="store_replaced")
    assert run.series("loss")["loss"].steps[-1] == writer.step - 1


def test_a_run_that_somebody_deletes_while_it_goes_on(where: str) -> None:
    writer = Writer(where)
    writer.write(20)
    assert writer.sink.flush(60)
    with open_store(where) as store:
        store.delete("one")
    writer.write(20)
    assert writer.sink.flush(60)
    writer.sink.close(REPORT)
    assert writer.is_whole(writer.run()), "all of it was in memory"
    assert "what it had is gone" in writer.sink.told()["missing"]


@pytest.mark.parametrize("after", ["commit", "statement"])
@pytest.mark.parametrize("at", [0, 1, 2, 5])
def test_a_connection_that_breaks_writes_nothing_twice(
    where: str, at: int, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks once: in the middle of a transaction, or when all is written and only the answer is missing."""
    connect, left = writings.schema.connect, [at]

    def breaks(*_: Any) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise sa.exc.OperationalError("the connection", None, OSError("broke"))

    def connected(*args: Any, **kwargs: Any) -> Any:
        engine = connect(*args, **kwargs)
        if after == "statement":
            sa.event.listen(engine, "after_cursor_execute", breaks)
        else:
            dialect = engine.dialect
            commit = dialect.do_commit

            def late(connection: Any) -> None:
                commit(connection)
                breaks()

            dialect.do_commit = late
        return engine

    monkeypatch.setattr(writings.schema, "connect", connected)
    writer = Writer(where)
    for _ in range(6):
        writer.write(300)
        writer.sink.write_event({"event_type": "own", "message": str(writer.step)})
        writer.sink.flush(10)
    writer.until(lambda: writer.sink.flush(10))
    writer.sink.close(REPORT)
    monkeypatch.setattr(writings.schema, "connect", connect)
    run = writer.run()
    assert writer.is_whole(run)
    assert len(run.events(types="own")) == 6
    points = run.series("loss", points=100)["loss"]
    assert points.count.sum() == writer.step


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = Writer(str(tmp_path / "file" / "store"))
    writer.write(3)
    writer.sink.close(REPORT)
    assert len(writer.warnings) == 1
    assert "Not a directory" in writer.warnings[0]
    assert "the last 3 readings" in writer.sink.told()["missing"]
    os.unlink(tmp_path / "file")
