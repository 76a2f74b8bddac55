"""The tables of a store, the same in SQLite and PostgreSQL, and how one is opened. Migrations run by themselves.

| table | a row is |
|---|---|
| `runs` | a run: its name, when it began, what is known about its surroundings |
| `ranks` | a process of a run: how far it is, its verdict, its report at the end; that of the newest attempt |
| `attempts` | a launch of a run after the first: from which step on, and what ended the one before |
| `segments` | whole readings, some hundreds, as three blobs |
| `buckets` | scalars thinned with age: at level n a column stands for 8**n steps |
| `samples` | tensor statistics thinned with age |
| `findings`, `events` | as they are told |
| `requests` | what somebody asks of a live run, and its answer |
"""

from __future__ import annotations

import importlib.util
import os
import random
import sqlite3
import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, String, Table, Text
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from seismograd import folders
from seismograd.store import forks

SCHEMA = 2

FILE = "seismograd.db"

PATIENCE = 30.0
"""Seconds that a connection waits for others who write."""

metadata = sa.MetaData()

_PREFIX = "seismograd_"
"""Of every table: a database may hold other things too."""

_number = BigInteger().with_variant(Integer, "sqlite")


def _owned() -> tuple[Column[Any], ...]:
    return Column("run", String(64), nullable=False), Column("rank", Integer, nullable=False, default=0)


meta = Table(_PREFIX + "meta", metadata, Column("name", String(32), primary_key=True), Column("value", Text))

runs = Table(
    _PREFIX + "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("started", Float(53), nullable=False, index=True),
    Column("about", Text, nullable=False, default="{}"),
)

ranks = Table(
    _PREFIX + "ranks",
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
    Column("attempt", Integer, nullable=False, default=0, server_default="0"),
    Column("owner", String(32), nullable=False, default="", server_default=""),  # the process that writes it
)

attempts = Table(
    _PREFIX + "attempts",
    metadata,
    Column("run", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("first", BigInteger, nullable=False),  # the step of the run that is its step 0
    Column("started", Float(53), nullable=False),
    Column("before", Text, nullable=False, default="{}"),  # how the attempt before it ended
)

segments = Table(
    _PREFIX + "segments",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("number", BigInteger, nullable=False),  # counts the segments of a rank, full or not
    Column("first", BigInteger, nullable=False),  # the step behind the last one of the segment before
    Column("last", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("whole", Boolean, nullable=False),  # with all its tables
    Column("bytes", BigInteger, nullable=False),
    Column("scalars", LargeBinary, nullable=False),
    Column("tables", LargeBinary),
    Column("facts", LargeBinary),
    Index(_PREFIX + "segments_place", "run", "rank", "first"),
    Index(_PREFIX + "segments_number", "run", "rank", "number", unique=True),
)

buckets = Table(
    _PREFIX + "buckets",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("level", Integer, nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index(_PREFIX + "buckets_place", "run", "rank", "level", "first"),
)

samples = Table(
    _PREFIX + "samples",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index(_PREFIX + "samples_place", "run", "rank", "first"),
)

findings = Table(
    _PREFIX + "findings",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("key", Text, nullable=False),
    Column("severity", String(16), nullable=False),
    Column("changed", BigInteger, nullable=False),  # the batch that wrote it last
    Column("data", Text, nullable=False),
    Index(_PREFIX + "findings_key", "run", "rank", "key", unique=True),
)

events = Table(
    _PREFIX + "events",
    metadata,
    Column("id", _number, primary_key=True),
    *_owned(),
    Column("time", Float(53), nullable=False),
    Column("event_type", Text, nullable=False),
    Column("level", String(16), nullable=False),
    Column("message", Text, nullable=False),
    Column("data", Text, nullable=False),
    Index(_PREFIX + "events_place", "run", "id"),
)

requests = Table(
    _PREFIX + "requests",
    metadata,
    Column("id", _number, primary_key=True),
    Column("run", String(64), nullable=False, index=True),
    Column("kind", String(32), nullable=False),
    Column("value", Text, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("taken", Float(53)),
    Column("answer", Text),
)

OWNED = (ranks, attempts, segments, buckets, samples, findings, events, requests)
"""The tables whose rows belong to a run."""

TOLD = (runs, ranks, attempts, findings, events, requests)
"""The small tables: what is asked for of all ranks at once."""


def _add_attempts(connection: Connection) -> None:
    attempts.create(connection, checkfirst=True)
    for column, kind in (("attempt", "INTEGER NOT NULL DEFAULT 0"), ("owner", "VARCHAR(32) NOT NULL DEFAULT ''")):
        connection.execute(sa.text(f"ALTER TABLE {ranks.name} ADD COLUMN {column} {kind}"))


MIGRATIONS: dict[int, Callable[[Connection], None]] = {2: _add_attempts}
"""What brings a store of the schema before it to this one, by number."""


class StoreError(ValueError):
    """The store cannot be used; the message says which, why, and what to do."""


class NoStoreError(StoreError):
    """A database in which nothing was ever recorded."""


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
    except (ArgumentError, ValueError):
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
            asked = 0
        if asked < 1024 * 1024:
            raise StoreError(
                f"SEISMOGRAD_STORE_LIMIT is {text!r}: it takes a number of megabytes, 1 or more, such as 200"
            )
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


def connect(
    url: sa.URL,
    *,
    writes: bool = False,
    patience: float = PATIENCE,
    frozen: bool = False,
    beside: Path | None = None,
    shared: bool = False,
) -> Engine:
    """An engine on the store, which is made or migrated if `writes`; a `StoreError` says what is in the way.

    `frozen` refuses every change of it, by us too: the database itself is told so. `beside` is a file whose runs are
    read as if they were in it too. A `shared` file has one writer, and readers on other machines.
    """
    path = file_of(url)
    if beside is not None and path is not None and not writes and not path.is_file():
        url, path, beside, frozen = url.set(database=str(beside)), beside, None, False
    if path is None and importlib.util.find_spec("psycopg") is None:
        raise StoreError("a store on PostgreSQL needs a driver: pip install 'seismograd[postgres]'")
    if path is not None and not writes and not path.is_file():
        raise StoreError(
            f"there is no store at {folders.shown(path)}: runs are recorded there by seismograd run and sg.watch, "
            "or name another with --store"
        )
    engine: Engine | None = None
    deadline = time.monotonic() + patience
    while True:
        try:
            if path is not None and writes:
                make_folder(path.parent)
            engine = _engine(url, writes, patience, frozen, beside, shared)
            if not _migrate(engine, url, writes, frozen):
                _disposed(engine)
                engine = _engine(url, writes, patience, frozen, beside, shared, is_old=True)
            return engine
        except (DBAPIError, ImportError, OSError, UnicodeError) as error:
            _disposed(engine)
            if not _is_busy(error) or time.monotonic() > deadline:
                raise StoreError(f"the store {shown(url)} cannot be opened: {reason(error)}") from error
            time.sleep(0.05 + 0.1 * random.SystemRandom().random())  # many start at once
        except BaseException:
            _disposed(engine)
            raise


def _disposed(engine: Engine | None) -> None:
    if engine is not None:
        forks.let_go(engine)


def _is_busy(error: BaseException) -> bool:
    """Whether others have it just now, and it is worth while to wait."""
    origin = getattr(error, "orig", None)
    if isinstance(origin, sqlite3.Error):
        return getattr(origin, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
    return any(words in str(origin) for words in ("too many clients", "too many connections", "slots are reserved"))


def reason(error: BaseException) -> str:
    """Why the database refuses, in its own words, in a line."""
    origin = getattr(error, "orig", None) or error
    return " ".join(str(origin).split())[:300] or type(origin).__name__


def make_folder(path: Path) -> None:
    """Makes the folder of a store; what is in it is nobody's to commit."""
    new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    if new:
        (path / ".gitignore").write_text("*\n", encoding="utf-8")


def _engine(  # noqa: PLR0917
    url: sa.URL, writes: bool, patience: float, frozen: bool, beside: Path | None, shared: bool, is_old: bool = False
) -> Engine:
    path = file_of(url)
    if path is None:
        level = "READ COMMITTED" if writes else "REPEATABLE READ"  # readers see one moment, whatever is thinned
        told = {**_SERVER, "options": "-c default_transaction_read_only=on"} if frozen else _SERVER
        engine = sa.create_engine(url, pool_pre_ping=True, isolation_level=level, connect_args=told)
        forks.mind(engine, is_file=False)
        return engine

    def opened() -> sqlite3.Connection:
        address = path.as_uri() + ("?mode=rwc" if writes else _mode(path, frozen))
        options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "uri": True}
        with forks.using():
            connection = sqlite3.connect(address, patience, factory=forks.File, **options)
            try:
                if writes:
                    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first table, or without effect
                    # A log that readers share lies in memory, which machines do not share.
                    connection.execute(f"PRAGMA journal_mode={'TRUNCATE' if shared else 'WAL'}")
                    connection.execute(f"PRAGMA journal_size_limit={_LONGEST_LOG}")
                connection.execute("PRAGMA synchronous=NORMAL")
                if beside is not None or is_old:
                    _read_too(connection, beside)
                if frozen:
                    connection.execute("PRAGMA query_only=ON")
            except BaseException:
                connection.close()
                raise
        return connection

    engine = sa.create_engine(url, creator=opened)
    forks.mind(engine, is_file=True)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Who means to write says so at once: a lock that is asked for later could not be waited for.
        looks = not writes or connection.get_execution_options().get("looks")
        connection.exec_driver_sql("BEGIN" if looks else "BEGIN IMMEDIATE")

    return engine


def _read_too(connection: sqlite3.Connection, beside: Path | None) -> None:
    """The small tables are from now on those of both files; what an older one does not have is as it was meant then."""
    if beside is not None:
        connection.execute("ATTACH ? AS beside", (beside.as_uri() + "?mode=rw",))
    for table in TOLD:
        there = {row[1] for row in connection.execute(f"PRAGMA main.table_info({table.name})")}
        parts = []
        if there:
            parts.append(f"SELECT {', '.join(_column(each, there) for each in table.c)} FROM main.{table.name}")
        if beside is not None:
            names = ", ".join(f'"{column.name}"' for column in table.c)
            parts.append(f"SELECT {names} FROM beside.{table.name}")
        nothing = f"SELECT {', '.join(_column(each, ()) for each in table.c)} WHERE 0"
        connection.execute(f"CREATE TEMP VIEW {table.name} AS {' UNION ALL '.join(parts) or nothing}")


def _column(column: sa.Column[Any], there: Container[str]) -> str:
    if column.name in there:
        return f'"{column.name}"'
    default = column.default.arg if isinstance(column.default, sa.ColumnDefault) else None
    value = "NULL" if default is None else repr(default)
    return f'{value} AS "{column.name}"'


def _mode(path: Path, frozen: bool) -> str:
    if not _has_writable_folder(path):
        return _FROZEN
    # Who opens it for writing works a log off that was left there; without one only that way leaves nothing behind.
    return "?mode=ro" if frozen and _log_of(path).exists() else "?mode=rw"


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _has_writable_folder(path: Path) -> bool:
    """Whether readers can leave their marks beside the file; a log that is there has to be read too."""
    return (os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)) or _log_of(path).exists()


_FROZEN = "?mode=ro&immutable=1"
"""For a file on a disk to which nobody can write."""
_LONGEST_LOG = 8 * 1024 * 1024
"""Bytes to which SQLite's log is cut when it has been worked off."""
_SERVER = {"connect_timeout": 10, "application_name": "seismograd", "keepalives_idle": 30}


_READABLE = 1
"""The oldest schema of a file that is read as it is, where it cannot be brought up to date."""


def _migrate(engine: Engine, url: sa.URL, writes: bool, frozen: bool = False) -> bool:
    """Brings it up to date. `False`: it is older and stays so, and can be read all the same."""
    with engine.connect().execution_options(looks=True) as connection:
        found = _version(connection)
    if found == SCHEMA:
        return True
    if found is not None and found > SCHEMA:
        raise StoreError(
            f"the store {shown(url)} has schema {found}, this Seismograd reads up to {SCHEMA}: "
            "upgrade with pip install -U seismograd, or name another store"
        )
    if not writes:
        if found is None:
            raise NoStoreError(f"{shown(url)} is no store of Seismograd's: there are no runs in it")
        path = file_of(url)
        is_readable = path is not None and found >= _READABLE
        if is_readable and path is not None and (frozen or not _has_writable_folder(path)):
            return False
        if frozen:
            raise StoreError(
                f"the store {shown(url)} has schema {found}, of an older Seismograd, and may not be changed here: "
                "seismograd runs brings it up to date, once"
            )
        try:
            forks.let_go(connect(url, writes=True))
        except StoreError:
            if is_readable:
                return False
            raise
        engine.dispose()  # its connections know the tables as they were
        return True
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7340527)"))  # others that start now wait here
        found = _version(connection)
        if found is None:
            metadata.create_all(connection)
            connection.execute(meta.insert().values(name="schema", value=str(SCHEMA)))
            connection.execute(meta.insert().values(name="made", value=str(time.time())))
            return True
        for number in range(found + 1, SCHEMA + 1):
            MIGRATIONS[number](connection)
        connection.execute(meta.update().where(meta.c.name == "schema").values(value=str(SCHEMA)))
    return True


def _version(connection: Connection) -> int | None:
    if not sa.inspect(connection).has_table(meta.name):
        return None
    found = connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema")).scalar()
    if found is not None and not found.isdecimal():
        raise StoreError(f"the store's schema is said to be {found!r}, which is no number: it is damaged")
    return None if found is None else int(found)
