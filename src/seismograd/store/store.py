"""The store: all runs of a folder or of a database."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from seismograd import folders
from seismograd.config import find_config
from seismograd.store import schema, shared
from seismograd.store.gathering import Gathering
from seismograd.store.run import ALIVE, DamagedRankError, Run
from seismograd.store.schema import StoreError

_ALL_BUT_REPORT = [column for column in schema.ranks.c if column.name != "report"]
"""A report may be large, and few ask for it."""


class NoRunError(StoreError):
    """The run that was asked for is not there; the message says what there is."""


class Store:
    """All runs of one folder, file or database. Reading it makes nothing: what is not there is a `StoreError`.

    `read_only` refuses every change, also that of bringing it up to date.
    """

    def __init__(self, where: str | os.PathLike[str] | None = None, *, read_only: bool = False) -> None:
        self.url = schema.url_of(place() if where is None else where)
        self.read_only = read_only
        self._writer: Engine | None = None
        self._lock = threading.Lock()
        self._gathering: Gathering | None = None
        self._begins_with: bool | None = None
        """Whether the store's own file was there: one that comes later is read too."""
        self._engine: Engine | None = None
        self._engine = self._opened()

    def __repr__(self) -> str:
        return f"<Store {self.shown}>"

    @property
    def shown(self) -> str:
        """Its address for people, without a password."""
        return schema.shown(self.url)

    @property
    def home(self) -> Path | None:
        """The folder in which captures of its runs lie."""
        path = schema.file_of(self.url)
        return folders.home() if path is None else path.parent

    def _opened(self) -> Engine:
        home, file = shared.home_of(self.url), schema.file_of(self.url)
        if self._gathering is None and home is not None and home.is_dir():
            self._gathering = Gathering(home, read_only=self.read_only)
            weakref.finalize(self, self._gathering.close)
        beside = None if self._gathering is None else self._gathering.file
        self._begins_with = file is None or file.is_file()
        engine = schema.connect(self.url, frozen=self.read_only, beside=beside)
        weakref.finalize(self, engine.dispose)
        return engine

    def gather(self, *, at_once: bool = False) -> None:
        """Looks at what the files of ranks tell that is new, if there are any."""
        with self._lock:
            file, home = schema.file_of(self.url), shared.home_of(self.url)
            if self._engine is None or file is None or home is None:
                return
            if (self._gathering is None and home.is_dir()) or (not self._begins_with and file.is_file()):
                self._engine, before = self._opened(), self._engine
                before.dispose()
            gathering = self._gathering
        if gathering is not None:
            gathering.refresh(at_once=at_once)

    def folder(self, run: str) -> shared.Folder | None:
        """The folder of a run whose ranks have files of their own."""
        return None if self._gathering is None else self._gathering.folder(run)

    def ask(self, folder: shared.Folder, request: Mapping[str, Any]) -> int:
        """Puts a request where the ranks of a run will find it; its number."""
        if self.read_only:
            raise self._frozen()
        try:
            number = folder.ask(request)
        except OSError as error:
            raise StoreError(f"the run {folder.path.name} cannot be asked for anything: {error}") from error
        self.gather(at_once=True)
        return number

    def runs(self, limit: int | None = None, offset: int = 0) -> list[Run]:
        """The runs, newest first."""
        self.gather()
        own = sa.select(schema.runs).order_by(schema.runs.c.started.desc(), schema.runs.c.id.desc())
        with self.reading() as connection:
            rows = connection.execute(own.limit(limit).offset(offset)).mappings().all()
            return self._made(connection, rows)

    def count(self) -> int:
        """How many runs there are."""
        self.gather()
        with self.reading() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(schema.runs)).scalar_one()

    def live(self) -> list[Run]:
        """The runs that go on, newest first."""
        self.gather()
        table, own = schema.ranks.c, schema.runs
        alive = sa.select(table.run).where(table.ended.is_(None), table.heartbeat > time.time() - ALIVE)
        newest = sa.select(own).where(own.c.id.in_(alive)).order_by(own.c.started.desc(), own.c.id.desc())
        with self.reading() as connection:
            return [run for run in self._made(connection, connection.execute(newest).mappings().all()) if run.live]

    def severities(self, runs: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        """How many findings of each severity the runs have; those without any are left out."""
        self.gather()
        table = schema.findings.c
        own = sa.select(table.run, table.severity, sa.func.count()).group_by(table.run, table.severity)
        if runs is not None:
            own = own.where(table.run.in_(runs))
        found: dict[str, dict[str, int]] = {}
        with self.reading() as connection:
            for run, severity, number in connection.execute(own):
                found.setdefault(run, {})[severity] = number
        return found

    def run(self, name: str = "last") -> Run:
        """The run with this id, or whose id begins so, or the newest of this name; `last` is the newest of all."""
        self.gather()
        table = schema.runs.c
        newest = sa.select(schema.runs).order_by(table.started.desc(), table.id.desc())
        with self.reading() as connection:
            if name == "last":
                rows = connection.execute(newest.limit(1)).mappings().all()
            else:
                rows = connection.execute(newest.where(table.id == name)).mappings().all()
                if not rows and name:
                    begins = table.id.startswith(name, autoescape=True)
                    rows = connection.execute(newest.where(begins).limit(20)).mappings().all()
                if not rows:
                    rows = connection.execute(newest.where(table.name == name).limit(1)).mappings().all()
            if len(rows) == 1:
                return self._made(connection, rows)[0]
            raise self._missing(connection, name, [row["id"] for row in rows])

    def delete(self, run: str) -> None:
        """Forgets a run: all of its rows, and the files of its ranks."""
        self.gather()
        if (folder := self.folder(run)) is not None:
            if self.read_only:
                raise self._frozen()
            try:
                shutil.rmtree(folder.path)
            except OSError as error:
                raise StoreError(f"the run {run} cannot be removed: {error}") from error
            self.gather(at_once=True)
            if not self._begins_with:
                return
        with self.writing() as connection:
            for table in schema.OWNED:
                connection.execute(table.delete().where(table.c.run == run))
            connection.execute(schema.runs.delete().where(schema.runs.c.id == run))

    def close(self) -> None:
        for engine in (self._engine, self._writer):
            if engine is not None:
                engine.dispose()
        if self._gathering is not None:
            self._gathering.close()
        self._engine = self._writer = self._gathering = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that reads; what the database refuses is a `StoreError`."""
        if self._engine is None:
            raise StoreError(f"the store {self.shown} was closed: open it again")
        with self._said(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def readings(self, run: str, rank: int) -> Iterator[Connection]:
        """A connection that reads what one rank measured: that is perhaps in a file of its own."""
        gathering = self._gathering
        if gathering is None or gathering.folder(run) is None:
            with self.reading() as connection:
                yield connection
            return
        with self._said(f"rank {rank} of the run {run}"), gathering.reading(run, rank) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction."""
        if self._engine is None:
            raise StoreError(f"the store {self.shown} was closed: open it again")
        if self.read_only:
            raise self._frozen()
        if self._writer is None:
            self._writer = schema.connect(self.url, writes=True)
            weakref.finalize(self, self._writer.dispose)
        with self._said(), self._writer.begin() as connection:
            yield connection

    def _frozen(self) -> StoreError:
        return StoreError(f"the store {self.shown} was opened to be read only: nothing in it is changed")

    @contextmanager
    def _said(self, part: str = "") -> Iterator[None]:
        try:
            yield
        except (DBAPIError, OSError) as error:
            if not part and not isinstance(error, DBAPIError):
                raise
            where = f"{part} in {self.shown}" if part else f"the store {self.shown}"
            raise (DamagedRankError if part else StoreError)(
                f"{where} cannot be used: {schema.reason(error)}"
            ) from error

    def _made(self, connection: Connection, rows: Any) -> list[Run]:
        table = schema.ranks
        ids = [row["id"] for row in rows]
        found: dict[str, list[Any]] = {number: [] for number in ids}
        for at in range(0, len(ids), 500):
            own = sa.select(*_ALL_BUT_REPORT).where(table.c.run.in_(ids[at : at + 500])).order_by(table.c.rank)
            for rank in connection.execute(own).mappings():
                found[rank["run"]].append(rank)
        return [Run(self, row, found[row["id"]]) for row in rows]

    def _missing(self, connection: Connection, name: str, matches: list[str]) -> NoRunError:
        if matches:
            return NoRunError(
                f"{name!r} is the beginning of {len(matches)} runs, say more of it: {', '.join(matches[:5])}"
            )
        table = schema.runs.c
        known = connection.execute(sa.select(table.id, table.name).order_by(table.started.desc()).limit(200)).all()
        if not known:
            return NoRunError(f"there is no run in {self.shown} yet: record one with seismograd run train.py")
        near = difflib.get_close_matches(name, [word for row in known for word in row], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"the newest is {known[0].id} ({known[0].name})"
        return NoRunError(f"there is no run {name!r} in {self.shown}: {hint}")


class Runs(list[Run]):
    """A list of runs, which a notebook shows as a table."""

    def _repr_html_(self) -> str | None:
        from seismograd.reports.page.cell import runs_table, shown_or_none

        return shown_or_none(lambda: runs_table(self))


def place(asked: str | os.PathLike[str] | None = None) -> str | os.PathLike[str]:
    """Where runs are looked for: as asked, else where they are recorded; where that is off, where they were before."""
    try:
        found = folders.store(asked, find_config().store if asked is None else None)
    except (TypeError, ValueError) as error:
        raise StoreError(str(error)) from None
    return folders.home() if found is False else found


def option(url: sa.URL) -> str:
    """What a command needs to come to that store: nothing, if it looks there by itself."""
    try:
        usual = schema.url_of(place())
    except StoreError:
        usual = None
    if url == usual:
        return ""
    file = schema.file_of(url)
    where = folders.shown(file.parent) if file is not None and file.name == schema.FILE else schema.shown(url)
    return f" --store {shlex.quote(where)}"


def open_store(where: str | os.PathLike[str] | Store | None = None, *, read_only: bool = False) -> Store:
    """The store in a folder, in a `.db` file or at a URL; without one that where runs are recorded."""
    return where if isinstance(where, Store) else Store(where, read_only=read_only)


def runs(where: str | os.PathLike[str] | Store | None = None) -> list[Run]:
    """The recorded runs, newest first."""
    return Runs(open_store(where).runs())
