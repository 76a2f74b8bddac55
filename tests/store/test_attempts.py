"""A launcher starts the processes of a run again: the same run goes on, as a new attempt."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from seismograd.records import Reading
from seismograd.store import Recorder, open_store, schema
from seismograd.store.recorder import Batch
from seismograd.store.writing import Writing

from .test_ranks import REPORT, RUN, Ranks, one, steps_of

OLD = Path(__file__).with_name("schema_1.sql")
"""A store as Seismograd made it before there were attempts: one run, two ranks, as SQL."""


def test_an_attempt_goes_on_behind_the_one_before_it(where: str) -> None:
    first = Ranks(where, 2)
    first.train(600)
    first.find(1)
    first.flush()
    first.sinks[0].write_reading(Reading(600, {"loss": 0.0}))  # the first rank is one step ahead
    first.end()
    second = Ranks(where, 2, attempt=1)
    second.train(30)
    second.find(1)
    second.flush()
    with one(where) as run:
        assert run.ranks == [0, 1]
        assert (run.attempt, run.live, run.ended, run.steps) == (1, True, None, 631)
        assert steps_of(run, 0) == list(range(631))
        assert steps_of(run, 1) == [*range(600), *range(601, 631)], "at the same step on all ranks"
        assert run.series("loss", rank=1)["loss"].last.tolist()[-1] == 29 + 1 / 8
        assert [(found.step, found.evidence.get("attempt")) for found in run.findings()] == [(600, None), (631, 1)]
        assert [(each.number, each.first) for each in run.attempts] == [(0, 0), (1, 601)]
        assert run.attempts[1].before["last_step"] == 600
        (event,) = run.events(types="attempt")
        assert event["message"].startswith("attempt 1 begins at step 601")
        second.end()
        assert run.refresh().ended is not None
        assert run.report()["run"]["steps"] == 631
    assert first.said == second.said == []


def test_after_an_attempt_that_was_killed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what it wrote is lost, and what it would still write is not written."""
    url = schema.url_of(where)

    def writing(rank: int, attempt: int) -> Writing:
        sink = Recorder(url, RUN, "many", rank=rank, world=2, attempt=attempt)
        return sink._open()

    def batch(steps: range, rank: int) -> Batch:
        readings = [(Reading(step, {"loss": float(step)}, rank=rank), time.time()) for step in steps]
        return Batch(readings=readings, state={"status": "warning", "steps": steps.stop})

    before = [writing(rank, 0) for rank in range(2)]
    for rank, each in enumerate(before):
        each.write(batch(range(700), rank))
        each.write(batch(range(700, 703), rank))
    after = [writing(rank, 0) for rank in range(2)]  # a launcher that does not count them
    for rank, each in enumerate(after):
        each.write(batch(range(5), rank))
        assert each.attempt == 1
    before[0].write(batch(range(703, 900), 0))
    before[0].thin()
    assert before[0].is_superseded
    with one(where) as run:
        for rank in range(2):
            assert steps_of(run, rank) == list(range(708))
        assert run.attempts[1].before["lost"] == [0, 1]
        assert run.attempts[1].reason == "ranks 0, 1 broke off without an end"
        assert run.status == "warning"
        assert [each["attempt"] for each in run.per_rank()] == [1, 1]
    third = writing(1, 2)  # of the third attempt one rank only
    third.write(Batch(readings=[(Reading(0, {"loss": 1.0}, rank=1), time.time())], state={"status": "healthy"}))
    with one(where) as run:
        assert (run.attempt, run.status) == (2, "healthy"), "an attempt that is over is history"
        assert [each["state"] for each in run.per_rank()] == ["lost", "live"]
        assert run.attempts[2].first == 708
        assert steps_of(run, 1)[-1] == 708
    for each in (*before, *after, third):
        each.disconnect()


def test_requests_of_an_earlier_attempt_are_not_done_again(where: str) -> None:
    first = Ranks(where, 2)
    first.train(2)
    first.flush()
    with one(where) as run:
        run.ask("stop")
        while len(first.asked) < 2:
            time.sleep(0.05)
        first.end()
        second = Ranks(where, 2, attempt=1)
        second.train(2)
        second.flush()
        run.refresh().ask("level", "basic")
        while len(second.asked) < 2:
            time.sleep(0.05)
        second.end()
    assert sorted(second.asked) == [(0, "level"), (1, "level")]


def test_one_rank_alone(where: str) -> None:
    for attempt in range(3):
        ranks = Ranks(where, 1, attempt=attempt)
        ranks.train(10)
        ranks.end()
    with one(where) as run:
        assert steps_of(run, 0) == list(range(30))
        assert run.report()["run"]["steps"] == 30
        assert [each.first for each in run.attempts] == [0, 10, 20]


def test_a_store_of_the_schema_before(where: str) -> None:
    """It is brought up to date, and its runs are as they were."""
    engine = sa.create_engine(schema.url_of(where))
    if "://" not in where:
        Path(where).mkdir()
        with sqlite3.connect(Path(where) / schema.FILE) as connection:
            connection.executescript(OLD.read_text(encoding="utf-8"))
        connection.close()
    else:
        with engine.begin() as connection:
            for table in schema.metadata.sorted_tables:
                if table is not schema.attempts:
                    table.create(connection)
            for column in ("attempt", "owner"):
                connection.execute(sa.text(f"ALTER TABLE {schema.ranks.name} DROP COLUMN {column}"))
            for line in OLD.read_text(encoding="utf-8").splitlines():
                if line.startswith("INSERT INTO"):
                    connection.exec_driver_sql(_as_postgresql(line))
            for table in (schema.segments, schema.findings):
                connection.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), 1000)")
    engine.dispose()
    with one(where) as run:
        assert (run.id, run.name, run.ranks, run.attempt) == ("20260101-101500-old000", "old", [0, 1], 0)
        assert steps_of(run, 0) == steps_of(run, 1) == list(range(520))
        assert [finding.id for finding in run.findings()] == ["made-up"]
        assert [each.number for each in run.attempts] == [0]
        assert run.ended is not None
    sink = Recorder(schema.url_of(where), "20260101-101500-old000", "old", rank=1, complain=pytest.fail)
    sink.write_reading(Reading(0, {"loss": 1.0}, rank=1))
    sink.close(REPORT)
    with one(where) as run:
        assert steps_of(run, 1) == list(range(521)), "and can go on"
    with open_store(where) as store, store.reading() as connection:
        found = connection.execute(sa.select(schema.meta.c.value).where(schema.meta.c.name == "schema")).scalar_one()
        assert found == str(schema.SCHEMA)


def test_what_an_earlier_attempt_found_is_still_kept_whole(tmp_path: Path) -> None:
    first = Ranks(str(tmp_path), 2)
    first.train(5)
    first.find(1)
    first.end()
    sink = Recorder(schema.url_of(tmp_path), RUN, "many", rank=1, world=2, attempt=1)
    writing = sink._open()
    writing.write(Batch(readings=[(Reading(0, {"loss": 1.0}, rank=1), time.time())]))
    writing.disconnect()
    with one(str(tmp_path)) as run:
        assert list(writing._kept._pins.values()) == [finding.step for finding in run.findings()] != []


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("read_only", [False, True])
def test_an_older_store_that_cannot_be_changed_is_read(
    tmp_path: Path, read_only: bool, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / schema.FILE
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
    if beside:
        ranks = Ranks(str(tmp_path), 2)
        ranks.train(3)
        ranks.end()
    before = file.read_bytes()
    if not read_only:
        monkeypatch.setattr(schema, "_has_writable_folder", lambda path: False)
    with open_store(tmp_path, read_only=read_only) as store:
        assert store.count() == 1 + beside
        run = store.run("20260101-101500-old000")
        assert (run.name, run.ranks, run.attempt, run.live) == ("old", [0, 1], 0, False)
        assert steps_of(run, 0) == list(range(520))
        assert [finding.id for finding in run.findings()] == ["made-up"]
        assert [each.number for each in run.attempts] == [0]
        if beside:
            assert steps_of(store.run(RUN), 1) == [0, 1, 2]
    assert file.read_bytes() == before
    monkeypatch.undo()
    with open_store(tmp_path) as store:  # whoever may brings it up to date, and reads it at once
        run = store.run("20260101-101500-old000")
        assert (run.attempt, run._ranks[0]["owner"], store.count()) == (0, "", 1 + beside)
    assert file.read_bytes() != before


def _as_postgresql(line: str) -> str:
    import re

    line = re.sub(r'INSERT INTO "?(\w+)"? VALUES', r"INSERT INTO \1 VALUES", line)
    line = re.sub(r"X'([0-9A-Fa-f]*)'", r"'\\x\1'", line)
    if schema.segments.name in line:  # its truths are numbers in SQLite
        head, tail = line.split("VALUES(")
        values = tail.split(",")
        values[7:9] = [{"0": "false", "1": "true"}[each] for each in values[7:9]]
        line = head + "VALUES(" + ",".join(values)
    return line.rstrip(";").replace("%", "%%")
