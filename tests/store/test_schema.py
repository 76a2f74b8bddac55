"""A store is made and migrated by itself, and one that cannot be used says why."""

from __future__ import annotations

import importlib.util
import multiprocessing
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from seismograd.records import Reading
from seismograd.store import Recorder, StoreError, open_store, schema

ONE_MORE = schema.SCHEMA + 1


def _write(where: str, run: str) -> None:
    sink = Recorder(schema.url_of(where), run, run, complain=pytest.fail)
    sink.write_reading(Reading(0, {"loss": 1.0}))
    sink.close({"run": {}})


def _set_schema(where: str, number: str) -> None:
    engine = schema.connect(schema.url_of(where), writes=True)
    with engine.begin() as connection:
        connection.execute(schema.meta.update().where(schema.meta.c.name == "schema").values(value=number))
    engine.dispose()


def test_many_start_at_once_on_an_empty_store(where: str) -> None:
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=_write, args=(where, f"run-{number}")) for number in range(12)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 12
    with open_store(where) as store:
        assert len(store.runs()) == 12


def test_a_newer_schema_is_refused(where: str) -> None:
    _write(where, "one")
    _set_schema(where, "7")
    for writes in (False, True):
        with pytest.raises(StoreError, match=r"has schema 7, this Seismograd reads up to 2: upgrade with pip"):
            schema.connect(schema.url_of(where), writes=writes)
    warnings: list[str] = []
    sink = Recorder(schema.url_of(where), "two", "two", complain=warnings.append)
    sink.write_reading(Reading(0, {"loss": 1.0}))
    sink.flush(30)
    sink.close({"run": {}})
    assert len(warnings) == 1
    assert "has schema 7" in warnings[0]


@pytest.mark.parametrize("writes", [False, True])
def test_an_older_schema_is_migrated(where: str, writes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(where, "one")
    monkeypatch.setattr(schema, "SCHEMA", ONE_MORE)
    steps = []

    def add_a_column(connection: Connection) -> None:
        steps.append(connection.dialect.name)
        connection.execute(sa.text(f"ALTER TABLE {schema.runs.name} ADD COLUMN mood TEXT"))
        connection.execute(sa.text(f"UPDATE {schema.runs.name} SET mood = 'good'"))

    monkeypatch.setitem(schema.MIGRATIONS, ONE_MORE, add_a_column)
    for _ in range(2):
        engine = schema.connect(schema.url_of(where), writes=writes)
        with engine.connect() as connection:
            moods = connection.execute(sa.text(f"SELECT mood FROM {schema.runs.name}")).scalars().all()
        engine.dispose()
        assert moods == ["good"]
    assert len(steps) == 1


def test_a_migration_that_fails_leaves_everything_as_it_was(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(where, "one")
    monkeypatch.setattr(schema, "SCHEMA", ONE_MORE)

    def fails(connection: Connection) -> None:
        connection.execute(sa.text(f"ALTER TABLE {schema.runs.name} ADD COLUMN mood TEXT"))
        connection.execute(sa.text("SELECT * FROM nowhere"))

    monkeypatch.setitem(schema.MIGRATIONS, ONE_MORE, fails)
    with pytest.raises(StoreError, match=r"cannot be opened: .*nowhere"):
        schema.connect(schema.url_of(where), writes=True)
    monkeypatch.undo()
    with open_store(where) as store:
        assert store.run("one").names() == ["loss"]
    _write(where, "two")


def test_a_version_that_is_no_number(where: str) -> None:
    _write(where, "one")
    _set_schema(where, "one")
    with pytest.raises(StoreError, match="said to be 'one', which is no number"):
        open_store(where)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    path.write_text("my own notes " * 100)
    for writes in (False, True):
        with pytest.raises(StoreError, match=r"mine\.db cannot be opened: file is not a database"):
            schema.connect(schema.url_of(path), writes=writes)
    assert path.read_text() == "my own notes " * 100


def test_a_database_of_somebody_elses(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (name TEXT)")
    connection.execute("INSERT INTO runs VALUES ('theirs')")
    connection.commit()
    with pytest.raises(StoreError, match="is no store of Seismograd's"):
        open_store(path)
    _write(str(path), "one")
    with open_store(path) as store:
        assert [run.id for run in store.runs()] == ["one"]
    assert connection.execute("SELECT * FROM runs").fetchall() == [("theirs",)]
    connection.close()


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        open_store(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "psycopg" else found(name))
    with pytest.raises(StoreError, match=r"pip install 'seismograd\[postgres\]'"):
        open_store("postgresql://somebody@localhost/runs")


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("mysql://u@host/runs", "cannot be kept in 'mysql'"),
        ("postgresql://u:p@[broken/runs", "cannot be read|cannot be opened"),
        ("postgresql://u:sesame@host:nan/runs", "cannot be read|cannot be opened"),
        ("sqlite://", "cannot be kept in 'sqlite'"),
    ],
)
def test_an_address_that_cannot_be_used(where: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        open_store(where)
    assert "sesame" not in str(caught.value)


def test_a_password_is_never_shown(database: str) -> None:
    address = database.replace("postgres@", "postgres:sesame@")
    _write(address, "one")
    with open_store(address) as store:
        assert "sesame" not in store.shown + repr(store) + repr(store.run("one"))
        assert "postgres" in store.shown


@pytest.mark.parametrize("nonsense", ["much", "-5", "nan", "inf", "0", "0.5", "1e400"])
def test_a_limit_that_is_none(nonsense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEISMOGRAD_STORE_LIMIT", nonsense)
    with pytest.raises(StoreError, match=f"SEISMOGRAD_STORE_LIMIT is '{nonsense}'"):
        schema.limit_of()


def test_a_limit_in_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEISMOGRAD_STORE_LIMIT", "12.5")
    assert schema.limit_of() == 12.5 * 1024 * 1024
    assert schema.limit_of(5 << 20) == 5 << 20
    monkeypatch.delenv("SEISMOGRAD_STORE_LIMIT")
    assert schema.limit_of() == 200 << 20
