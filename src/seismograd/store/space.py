"""What a store takes on its disk, and how the disk gets back what removed runs took."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import sqlalchemy as sa

from seismograd.store import schema, shared
from seismograd.store.schema import StoreError
from seismograd.store.store import Store

_PATIENCE = 30.0
"""Seconds that others' writing is waited for."""

_INCREMENTAL = 2
"""SQLite's number for a file that can be made shorter bit by bit."""


def taken(store: Store) -> int:
    """Bytes that the store takes: of its file with the log and those of ranks, of its tables with their indexes."""
    path = schema.file_of(store.url)
    if path is not None:
        home = shared.home_of(store.url)
        files = [] if home is None else [file for file in home.rglob("*") if file.is_file()]
        return sum(part.stat().st_size for part in (*_parts(path), *files) if part.exists())
    with store.reading() as connection:
        sizes = [sa.func.pg_total_relation_size(table.name) for table in (schema.runs, *schema.OWNED)]
        return sum(connection.execute(sa.select(*sizes)).one())


def give_back(store: Store) -> None:
    """Shortens the file by what is unused. On a server, where others go on writing, the space is theirs."""
    path = schema.file_of(store.url)
    if path is None:
        _vacuum(store)
        return
    if not path.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as connection:
            if connection.execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL:
                connection.executescript("PRAGMA incremental_vacuum")  # execute() would free a single page
            else:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"the runs are gone, but {store.shown} could not be made smaller: {error}") from error


def _vacuum(store: Store) -> None:
    engine = schema.connect(store.url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in (schema.runs, *schema.OWNED):
                connection.execute(sa.text(f"VACUUM {table.name}"))
    except sa.exc.DBAPIError as error:
        raise StoreError(
            f"the runs are gone, but {store.shown} could not be made smaller: {schema.reason(error)}"
        ) from error
    finally:
        engine.dispose()


def _parts(path: Path) -> list[Path]:
    return [path, path.with_name(f"{path.name}-wal")]
