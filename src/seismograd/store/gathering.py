"""What the files of many ranks tell, gathered in one small database of the reader's own.

The small tables (how each rank is, findings, events, requests) are copied, and again only what is new; readings stay
where they are, and are read there, rank by rank. Nothing is written where the runs lie: several may read them, on
several machines, and from a disk to which nobody can write.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateIndex, CreateTable

from seismograd import folders
from seismograd.complaints import SeismogradWarning
from seismograd.store import forks, schema
from seismograd.store.shared import Folder, counter_of

SHARE = 4
"""Gathering may take one part in so many of the time."""
LEAST = 0.05
"""Seconds that it may take in any case; what is left is gathered the next time, the first rank first."""
FEW = 64
"""So many files are looked at whenever somebody asks."""
PATIENCE = 5.0
"""Seconds that a rank is waited for which writes just now."""
EVENTS = 100_000
"""Of a run, at most: the newest."""
QUIET = 60.0
"""Seconds without a sign of any rank after which a run is looked at less often."""
SELDOM = 5.0
"""Seconds between two looks at such a run."""
SETTLED = 10.0
"""Seconds after its end in which a run may still tell something."""

Row = dict[str, Any]


@dataclass
class _Source:
    """A rank's file, and what of it was read."""

    mark: Any = None
    """Of the file as it was read."""
    batch: int = -1
    event: int = 0
    row: Row = field(default_factory=dict)
    is_bad: bool = False


@dataclass
class _Gathered:
    """A run, as far as it was read."""

    folder: Folder
    sources: dict[int, _Source] = field(default_factory=dict)
    begun: Row = field(default_factory=dict)
    """As its first rank tells it, from when the first of all began."""
    asked: int = 0
    """The number of the last request."""
    looked: float = -1e9
    listed: int = -1
    """Of its folder, when it was over: from then on nothing changes in it."""

    def begin(self, row: Row | None) -> None:
        if row is not None:
            first = min(row["started"], self.begun.get("started", row["started"]))
            is_lower = row["rank"] <= self.begun.get("rank", row["rank"])
            self.begun = {**(row if is_lower else self.begun), "started": first}

    def may_wait(self) -> bool:
        """Whether nobody wrote for long, and it was looked at just now."""
        rows = [source.row for source in self.sources.values() if source.row]
        if not rows or time.time() - max(row["heartbeat"] for row in rows) < QUIET:
            return False
        is_early = time.monotonic() - self.looked < SELDOM
        if not is_early:
            self.looked = time.monotonic()
        return is_early

    def is_over(self, now: float) -> bool:
        rows = [source.row for source in self.sources.values() if source.row]
        if not rows:
            return False
        newest = max(row["attempt"] for row in rows)
        ends = [row["ended"] for row in rows if row["attempt"] == newest]
        world = self.begun.get("world", 1)
        return len(ends) >= world and None not in ends and now - max(ends) > SETTLED


@dataclass
class _Told:
    """What is new in a rank's file."""

    run: Row | None = None
    ranks: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    requests: list[Row] = field(default_factory=list)


@dataclass
class _News:
    """What is to be written."""

    gone: list[str]
    told: list[tuple[_Gathered, _Told]] = field(default_factory=list)
    requests: dict[str, dict[int, Row]] = field(default_factory=dict)
    attempts: dict[str, dict[int, Row]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.gone or self.told or self.requests or self.attempts)


class Gathering:
    """All runs of a folder whose ranks have files of their own. `read_only`: not even a broken write is worked off."""

    def __init__(self, home: Path, *, read_only: bool = False) -> None:
        self._home, self._read_only = home, read_only
        self._lock = threading.RLock()
        self._runs: dict[str, _Gathered] = {}
        self._done, self._took, self._looked = -1e9, 0.0, 0
        self._is_broken = False
        """Whether the last time what was read could not be written down: then all of it is read again."""
        self._pid = os.getpid()
        self.engine = self._engine()
        """For the files of ranks: which of them is said by `reading`."""
        self._wanted = threading.local()
        place = Path(tempfile.mkdtemp(prefix="seismograd-ranks-"))
        self.file = place / "gathered.db"
        """The small tables of all runs."""
        self._remove = weakref.finalize(self, _removed, place, self._pid)
        with self._index() as index:
            index.execute("PRAGMA journal_mode=WAL")
            for statement in _tables():
                index.execute(statement)

    def close(self) -> None:
        self.engine.dispose()
        self._remove()

    # -- which run, which rank ---------------------------------------------------------------------------------------

    def folder(self, run: str) -> Folder | None:
        """The folder of a run whose ranks have files."""
        found = self._runs.get(run)
        return None if found is None else found.folder

    @contextlib.contextmanager
    def reading(self, run: str, rank: int) -> Iterator[sa.Connection]:
        """A connection to the file of a rank; one that is not there has no rows."""
        folder = self.folder(run)
        if folder is None:  # just now
            raise FileNotFoundError(f"the run {run} is gone")
        self._wanted.file = folder.file(rank)
        with self.engine.connect() as connection:
            yield connection

    def _engine(self) -> sa.Engine:
        def opened() -> sqlite3.Connection:
            file: Path = self._wanted.file
            with forks.using():
                return _opened(file, read_only=self._read_only)

        engine = sa.create_engine("sqlite://", creator=opened, poolclass=NullPool)
        forks.mind(engine, is_file=True)
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return engine

    # -- gathering ---------------------------------------------------------------------------------------------------

    def refresh(self, *, at_once: bool = False) -> None:
        """Reads what is new; all of it the first time, and later as much as there is time for.

        Of many files it is not looked at again and again whether there is something new, unless `at_once`.
        """
        with self._lock:
            began = time.monotonic()
            since = began - self._done
            if since < self._took * (SHARE - 1) and self._looked > FEW and not at_once:
                return
            self._looked = 0
            until = began + max(LEAST, since / SHARE)
            try:
                self._gather(lambda: time.monotonic() > until)
            finally:
                self._done = time.monotonic()
                self._took = self._done - began

    def _gather(self, is_late: Callable[[], bool]) -> None:
        try:
            with os.scandir(self._home) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except OSError:
            names = []
        news = _News(gone=names if self._is_broken else [run for run in self._runs if run not in names])
        if self._is_broken:
            self._runs.clear()
        for run in news.gone:
            self._runs.pop(run, None)
        for run in names:
            with contextlib.suppress(OSError):  # it goes away just now
                self._look(run, news, is_late)
        if news:
            self._is_broken = True
            self._write(news)
            self._is_broken = False

    def _look(self, run: str, news: _News, is_late: Callable[[], bool]) -> None:
        """What is new in a run."""
        found = self._runs.get(run) or _Gathered(Folder(self._home / run))
        listed = found.folder.path.stat().st_mtime_ns
        if listed == found.listed or found.may_wait():
            return
        files = found.folder.ranks()
        self._looked += len(files)
        marks = {rank: mark for rank, file in files.items() if (mark := counter_of(file)) is not None}
        if any(rank not in marks or source.mark[0] != marks[rank][0] for rank, source in found.sources.items()):
            news.gone.append(run)  # what lies there now is something else
            self._runs.pop(run, None)
            found = _Gathered(found.folder)
        is_new, changed = run not in self._runs, False
        for rank, mark in marks.items():
            source = found.sources.get(rank) or _Source()
            if source.mark == mark or (rank and not is_new and is_late()):
                continue
            told = self._told(files[rank], source)
            source.mark, changed = mark, True
            found.sources[rank] = source
            if told is not None:
                found.begin(told.run)
                news.told.append((found, told))
        if changed:
            news.attempts[run] = found.folder.attempts()
        if asked := found.folder.requests(after=found.asked):
            found.asked = max(asked)
            news.requests[run] = asked
        found.listed = listed if found.is_over(time.time()) else -1
        if any(source.row for source in found.sources.values()):
            self._runs[run] = found

    def _told(self, file: Path, source: _Source) -> _Told | None:
        """What is new in a file; none if it cannot be read, which is said once."""
        try:
            with contextlib.closing(_opened(file, read_only=self._read_only)) as connection:
                return _new_in(connection, source)
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            if not _is_only_late(error) and not source.is_bad:
                source.is_bad = True
                why = " ".join(str(error).split()) or type(error).__name__
                warnings.warn(f"{folders.shown(file)} is left out: {why}", SeismogradWarning, stacklevel=2)
            return None

    def _write(self, news: _News) -> None:
        events: list[Row] = []
        with self._index() as index:
            index.execute("BEGIN IMMEDIATE")
            for run in news.gone:
                for table in schema.TOLD:
                    owner = "id" if table is schema.runs else "run"
                    index.execute(f"DELETE FROM {table.name} WHERE {owner} = ?", (run,))
            for found, told in news.told:
                if told.run is not None:
                    columns = [column.name for column in schema.runs.c]
                    _put(index, schema.runs, [{name: found.begun[name] for name in columns}])
                _put(index, schema.ranks, told.ranks)
                _put(index, schema.findings, told.findings)
                _put(index, schema.requests, told.requests)
                events += told.events
            for run, requests in news.requests.items():
                rows = [{"id": number, "run": run, **_request(told)} for number, told in requests.items()]
                _put(index, schema.requests, rows, "INSERT OR IGNORE")
            for run, attempts in news.attempts.items():
                rows = [{"run": run, "number": number, **_attempt(told)} for number, told in attempts.items()]
                _put(index, schema.attempts, rows)
            _put(index, schema.events, sorted(events, key=lambda row: row["time"]))
            for run in {row["run"] for row in events}:
                last = f"SELECT id FROM {schema.events.name} WHERE run = ? ORDER BY id DESC LIMIT 1 OFFSET {EVENTS}"
                if (oldest := index.execute(last, (run,)).fetchone()) is not None:
                    index.execute(f"DELETE FROM {schema.events.name} WHERE run = ? AND id <= ?", (run, oldest[0]))
            index.execute("COMMIT")

    @contextlib.contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        with forks.using(), contextlib.closing(sqlite3.connect(self.file, 30.0, isolation_level=None)) as index:
            index.execute("PRAGMA synchronous=OFF")
            yield index


def _opened(file: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection to a rank's file. What a killed rank left half written is taken back, in a copy if need be."""
    journal = file.with_name(f"{file.name}-journal")
    options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "uri": True}
    changes = not read_only and os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    connection = sqlite3.connect(
        f"{file.as_uri()}?mode={'rw' if changes else 'ro'}", PATIENCE, factory=forks.File, **options
    )
    try:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        connection.close()
        if changes or not journal.exists() or _is_only_late(error):
            raise
    except BaseException:
        connection.close()
        raise
    else:
        return connection
    with tempfile.TemporaryDirectory(prefix="seismograd-rank-") as folder:
        copy = Path(folder) / file.name
        for each in (journal, file):
            shutil.copyfile(each, Path(folder) / each.name)
        connection = sqlite3.connect(copy, PATIENCE, factory=forks.File, **{**options, "uri": False})
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            memory = sqlite3.connect(":memory:", factory=forks.File, **{**options, "uri": False})
            connection.backup(memory)
        finally:
            connection.close()
    return memory


def _new_in(connection: sqlite3.Connection, source: _Source) -> _Told | None:
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN")
    try:
        version = connection.execute(f"SELECT value FROM {schema.meta.name} WHERE name = 'schema'").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None  # it is being made
        raise
    if version is None or int(version[0]) != schema.SCHEMA:
        found = None if version is None else version[0]
        raise ValueError(f"it has schema {found}, this Seismograd reads {schema.SCHEMA}")
    told = _Told()
    told.ranks = _rows(connection, schema.ranks, without=("report",))
    rank = max((row["rank"] for row in told.ranks), default=0)
    if not source.row:
        for row in _rows(connection, schema.runs):
            told.run = {**row, "rank": rank, "world": _world(row["about"])}
    told.findings = _rows(connection, schema.findings, "changed > ?", source.batch)
    told.events = _rows(connection, schema.events, "id > ? ORDER BY id", source.event)
    if rank == 0:
        told.requests = _rows(connection, schema.requests)
    source.event = max((row["id"] for row in told.events), default=source.event)
    for row in (*told.findings, *told.events):
        row["id"] = None
    for row in told.ranks:
        source.row, source.batch = row, row["batch"]
    return told


def _world(about: str) -> int:
    try:
        return int(json.loads(about).get("world_size") or 1)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 1


def _rows(
    connection: sqlite3.Connection, table: sa.Table, where: str = "1", *values: Any, without: tuple[str, ...] = ()
) -> list[Row]:
    return [dict(row) for row in connection.execute(_select(table, where, without), values)]


@cache
def _select(table: sa.Table, where: str, without: tuple[str, ...]) -> str:
    columns = ", ".join(f'"{column.name}"' for column in table.c if column.name not in without)
    return f"SELECT {columns} FROM {table.name} WHERE {where}"


def _put(index: sqlite3.Connection, table: sa.Table, rows: list[Row], how: str = "INSERT OR REPLACE") -> None:
    if rows:
        names = list(rows[0])
        columns, places = ", ".join(f'"{name}"' for name in names), ", ".join(f":{name}" for name in names)
        index.executemany(f"{how} INTO {table.name} ({columns}) VALUES ({places})", rows)


def _request(told: Row) -> Row:
    value, created = told.get("value"), told.get("created")
    return {
        "kind": str(told.get("kind"))[:32],
        "value": value if isinstance(value, str) else "null",
        "created": created if isinstance(created, (int, float)) else 0.0,
    }


def _attempt(told: Row) -> Row:
    first, started = told.get("first"), told.get("started")
    return {
        "first": first if isinstance(first, int) else 0,
        "started": started if isinstance(started, (int, float)) else 0.0,
        "before": json.dumps(told.get("before") or {}),
    }


def _tables() -> Iterator[str]:
    """The tables of a store; requests are numbered by run."""
    dialect = sqlite.dialect()
    for table in schema.metadata.sorted_tables:
        text = str(CreateTable(table).compile(dialect=dialect))
        yield text.replace("PRIMARY KEY (id)", "PRIMARY KEY (run, id)") if table is schema.requests else text
        for index in table.indexes:
            yield str(CreateIndex(index).compile(dialect=dialect))
    yield f"INSERT INTO {schema.meta.name} (name, value) VALUES ('schema', '{schema.SCHEMA}')"


def _is_only_late(error: BaseException) -> bool:
    """Whether the next look will show it: the rank writes just now, or is gone since."""
    if isinstance(error, FileNotFoundError):
        return True
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN"))


def _removed(place: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(place, ignore_errors=True)
