"""The store: all runs of a folder or of a database."""

from __future__ import annotations

import difflib
import os
import shlex
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from seismograd import folders
from seismograd.config import find_config
from seismograd.store import schema
from seismograd.store.run import ALIVE, Run
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
        self._engine: Engine | None = schema.connect(self.url, frozen=read_only)
        self._writer: Engine | None = None
        weakref.finalize(self, self._engine.dispose)

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

    def runs(self, limit: int | None = None, offset: int = 0) -> list[Run]:
        """The runs, newest first."""
        own = sa.select(schema.runs).order_by(schema.runs.c.started.desc(), schema.runs.c.id.desc())
        with self.reading() as connection:
            rows = connection.execute(own.limit(limit).offset(offset)).mappings().all()
            return self._made(connection, rows)

    def count(self) -> int:
        """How many runs there are."""
        with self.reading() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(schema.runs)).scalar_one()

    def live(self) -> list[Run]:
        """The runs that go on, newest first."""
        table, own = schema.ranks.c, schema.runs
        alive = sa.select(table.run).where(table.ended.is_(None), table.heartbeat > time.time() - ALIVE)
        newest = sa.select(own).where(own.c.id.in_(alive)).order_by(own.c.started.desc(), own.c.id.desc())
        with self.reading() as connection:
            return [run for run in self._made(connection, connection.execute(newest).mappings().all()) if run.live]

    def severities(self, runs: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        """How many findings of each severity the runs have; those without any are left out."""
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
        """Forgets a run: all of its rows."""
        with self.writing() as connection:
            for table in schema.OWNED:
                connection.execute(table.delete().where(table.c.run == run))
            connection.execute(schema.runs.delete().where(schema.runs.c.id == run))

    def close(self) -> None:
        for engine in (self._engine, self._writer):
            if engine is not None:
                engine.dispose()
        self._engine = self._writer = None

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
    def writing(self) -> Iterator[Connection]:
        """A transaction."""
        if self._engine is None:
            raise StoreError(f"the store {self.shown} was closed: open it again")
        if self.read_only:
            raise StoreError(f"the store {self.shown} was opened to be read only: nothing in it is changed")
        if self._writer is None:
            self._writer = schema.connect(self.url, writes=True)
            weakref.finalize(self, self._writer.dispose)
        with self._said(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StoreError(f"the store {self.shown} cannot be used: {schema.reason(error)}") from error

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
