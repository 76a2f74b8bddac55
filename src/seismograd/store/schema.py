"""The tables of a store, the same in SQLite and PostgreSQL, and how one is opened. Migrations run by themselves.

| table | a row is |
|---|---|
| `runs` | a run: its name, when it began, what is known about its surroundings |
| `ranks` | a process of a run: how far it is, its verdict, its report at the end |
| `segments` | whole readings, some hundreds, as three blobs |
| `buckets` | scalars thinned with age: at level n a column stands for 8**n steps |
| `samples` | tensor statistics thinned with age |
| `findings`, `events` | as they are told |
| `requests` | what somebody asks of a live run, and its answer |
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, String, Table, Text
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from seismograd import folders

SCHEMA = 1

FILE = "seismograd.db"

metadata = sa.MetaData()

_number = BigInteger().with_variant(Integer, "sqlite")


def _owned() -> tuple[Column[Any], ...]:
    return Column("run", String(64), nullable=False), Column("rank", Integer, nullable=False, default=0)


meta = Table("seismograd_meta", metadata, Column("name", String(32), primary_key=True), Column("value", Text))

runs = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("started", Float(53), nullable=False, index=True),
    Column("about", Text, nullable=False, default="{}"),
)

ranks = Table(
    "ranks",
    metadata,
    Column("run", String(64), primary_key=True),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("started", Float(53), nullable=False),
    Column("heartbeat", Float(53), nullable=False),
    Column("ended", Float(53)),
    Column("batch", BigInteger, nullable=False, default=0),
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("state", Text, nullable=False, default="{}"),  # status, level, budget, steps, counts, what is missing
    Column("names", Text, nullable=False, default="[]"),
    Column("tables", Text, nullable=False, default="{}"),
    Column("report", Text),
)

segments = Table(
    "segments",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("first", BigInteger, nullable=False),  # the step behind the last one of the segment before
    Column("last", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("whole", Boolean, nullable=False),  # with all its tables
    Column("bytes", BigInteger, nullable=False),
    Column("scalars", LargeBinary, nullable=False),
    Column("tables", LargeBinary),
    Column("facts", LargeBinary),
    Index("segments_place", "run", "rank", "first"),
)

buckets = Table(
    "buckets",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("level", Integer, nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("buckets_place", "run", "rank", "level", "first"),
)

samples = Table(
    "samples",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("samples_place", "run", "rank", "first"),
)

findings = Table(
    "findings",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("key", Text, nullable=False),
    Column("severity", String(16), nullable=False),
    Column("changed", BigInteger, nullable=False),  # the batch that wrote it last
    Column("data", Text, nullable=False),
    Index("findings_key", "run", "rank", "key", unique=True),
)

events = Table(
    "events",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("time", Float(53), nullable=False),
    Column("event_type", Text, nullable=False),
    Column("level", String(16), nullable=False),
    Column("message", Text, nullable=False),
    Column("data", Text, nullable=False),
    Index("events_place", "run", "id"),
)

requests = Table(
    "requests",
    metadata,
    Column("id", _number, primary_key=True),
    Column("run", String(64), nullable=False, index=True),
    Column("kind", String(32), nullable=False),
    Column("value", Text, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("taken", Float(53)),
    Column("answer", Text),
)

OWNED = (ranks, segments, buckets, samples, findings, events, requests)
"""The tables whose rows belong to a run."""

MIGRATIONS: dict[int, Callable[[Connection], None]] = {}
"""What brings a store of the schema before it to this one, by number."""


class StoreError(ValueError):
    """The store cannot be used; the message says which, why, and what to do."""


def url_of(where: str | os.PathLike[str] | None) -> sa.URL:
    """The address of the store that is meant: a folder, a `.db` file, or a URL; none is the folder of all runs."""
    if where is None:
        where = folders.home()
    text = os.fspath(where)
    if "://" in text:
        return _server(text)
    path = Path(os.path.abspath(os.path.expanduser(text)))
    if path.suffix not in (".db", ".sqlite", ".sqlite3"):
        if path.exists() and not path.is_dir():
            raise StoreError(f"the store {text!r} is neither a folder nor a .db file: give a folder")
        path = path / FILE
    return sa.URL.create("sqlite", database=str(path))


def _server(text: str) -> sa.URL:
    try:
        url = make_url(text)
    except ArgumentError:
        raise StoreError(
            "the store's address cannot be read: write it as postgresql://user@host/name, or give a folder"
        ) from None
    kind = url.drivername.partition("+")[0]
    if kind in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and url.database:
        return url.set(drivername="sqlite", database=os.path.abspath(url.database))
    raise StoreError(f"a store cannot be kept in {kind!r}: use a folder, a .db file or postgresql://user@host/name")


LIMIT = 200 * 1024 * 1024
"""Bytes that a run may take in the store."""


def limit_of(asked: int | None = None) -> int:
    """The limit in bytes: as asked, else as `SEISMOGRAD_STORE_LIMIT` says, in MB."""
    if asked is None:
        text = os.environ.get("SEISMOGRAD_STORE_LIMIT", "").strip()
        try:
            asked = int(float(text) * 1024 * 1024) if text else LIMIT
        except (ValueError, OverflowError):
            raise StoreError(
                f"SEISMOGRAD_STORE_LIMIT is {text!r}: it takes a number of megabytes, such as 200"
            ) from None
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1024 * 1024:
        raise StoreError(f"a limit of {asked!r} bytes is too small for a run: give 1048576 (1 MB) or more")
    return asked


def shown(url: sa.URL) -> str:
    """The address for people: without its password."""
    if url.get_backend_name() == "sqlite":
        return folders.shown(Path(url.database or ""))
    return url.set(drivername="postgresql").render_as_string(hide_password=True)


def file_of(url: sa.URL) -> Path | None:
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def connect(url: sa.URL, *, writes: bool = False, patience: float = 30.0) -> Engine:
    """An engine on the store, which is made or migrated if `writes`; a `StoreError` says what is in the way."""
    path = file_of(url)
    if path is not None:
        if writes:
            _make_folder(path)
        elif not path.is_file():
            raise StoreError(
                f"there is no store at {folders.shown(path)}: runs are recorded there by seismograd run and sg.watch, "
                "or name another with --store"
            )
    try:
        engine = _engine(url, writes, patience)
        _migrate(engine, url, writes)
    except ModuleNotFoundError:
        raise StoreError("PostgreSQL needs a driver: pip install 'seismograd[postgres]'") from None
    except NoSuchModuleError as error:
        raise StoreError(f"the store's address cannot be used: {error}") from None
    except DBAPIError as error:
        raise StoreError(f"the store {shown(url)} cannot be opened: {reason(error)}") from error
    return engine


def reason(error: BaseException) -> str:
    """Why the database refuses, in its own words, in a line."""
    origin = getattr(error, "orig", None) or error
    return " ".join(str(origin).split())[:300] or type(origin).__name__


def _make_folder(path: Path) -> None:
    new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    if new:
        (path.parent / ".gitignore").write_text("*\n", encoding="utf-8")


def _engine(url: sa.URL, writes: bool, patience: float) -> Engine:
    if file_of(url) is None:
        return sa.create_engine(url, pool_pre_ping=not writes, connect_args={"connect_timeout": 10})
    engine = sa.create_engine(
        url,
        connect_args={"timeout": patience, "check_same_thread": False, "isolation_level": None},
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        if writes:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first table, or without effect
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Who means to write says so at once: a lock that is asked for later could not be waited for.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _migrate(engine: Engine, url: sa.URL, writes: bool) -> None:
    with engine.connect() as connection:
        found = _version(connection)
    if found == SCHEMA:
        return
    if found is not None and found > SCHEMA:
        raise StoreError(
            f"the store {shown(url)} has schema {found}, this Seismograd reads up to {SCHEMA}: "
            "upgrade with pip install -U seismograd, or name another store"
        )
    if not writes:
        if found is None:
            raise StoreError(f"{shown(url)} is no store of Seismograd's: there are no runs in it")
        _migrate(connect(url, writes=True), url, True)
        return
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7340527)"))  # others that start now wait here
        found = _version(connection)
        if found is None:
            metadata.create_all(connection)
            connection.execute(meta.insert().values(name="schema", value=str(SCHEMA)))
            connection.execute(meta.insert().values(name="made", value=str(time.time())))
            return
        for number in range(found + 1, SCHEMA + 1):
            MIGRATIONS[number](connection)
        connection.execute(meta.update().where(meta.c.name == "schema").values(value=str(SCHEMA)))


def _version(connection: Connection) -> int | None:
    if not sa.inspect(connection).has_table(meta.name):
        return None
    found = connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema")).scalar()
    return None if found is None else int(found)
