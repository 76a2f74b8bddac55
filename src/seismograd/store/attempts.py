"""Attempts: an elastic launcher starts the processes of a run again, and the same run goes on.

All ranks have to go on at the same step. What holds is what the first of them writes down: in a table where they share
a database, in a file that appears whole or not at all where each has its own.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from seismograd.store import schema
from seismograd.store.shared import Folder
from seismograd.store.texts import from_json, to_json

PATIENCE = 5.0
"""Seconds that the first rank has to say where an attempt begins; then another one does."""
MOST = 16
"""Ranks that are named."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A launch of a run."""

    number: int
    first: int
    """The step of the run with which it begins."""
    started: datetime
    before: Mapping[str, Any]
    """How the attempt before it ended: `last_step`, `ranks`, the ranks that were `lost`, the `exits` of others."""

    @property
    def reason(self) -> str | None:
        """Why there had to be another one, in words."""
        return _words(self.before) if self.number else None

    def to_dict(self) -> dict[str, Any]:
        started = self.started.isoformat(timespec="milliseconds")
        told = {"number": self.number, "first": self.first, "started": started}
        return {**told, "before": dict(self.before), "reason": self.reason}


def listed(started: float, rows: Iterable[Any]) -> list[Attempt]:
    """The attempts of a run, in their order; the first one is in no table."""
    first = Attempt(0, 0, datetime.fromtimestamp(started, UTC), {})
    later = [
        Attempt(row["number"], row["first"], datetime.fromtimestamp(row["started"], UTC), from_json(row["before"]))
        for row in sorted(rows, key=lambda row: row["number"])
    ]
    return [first, *later]


def agreed(
    connection: Connection, run: str, number: int, *, rank: int, folder: Folder | None
) -> tuple[int, float, str | None]:
    """The first step of an attempt, when it began, and what to say of it, if it is we who have to."""
    if folder is None:
        return _in_table(connection, run, number)
    deadline = time.monotonic() + (PATIENCE if rank else 0.0)
    while (known := folder.attempts().get(number)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    ours = None
    if known is None:
        ours = _before(_rows_of_files(folder), number) | {"started": time.time()}
        known = folder.agree(number, ours)
    told = _said(number, known) if known == ours else None
    return int(known["first"]), float(known["started"]), told


def _in_table(connection: Connection, run: str, number: int) -> tuple[int, float, str | None]:
    table, told = schema.attempts, None
    own = sa.select(table).where(table.c.run == run, table.c.number == number)
    row = connection.execute(own).mappings().first()
    if row is None:
        known = _before(_rows_of_table(connection, run), number)
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        now = time.time()
        values = {"run": run, "number": number, "first": known["first"], "started": now}
        connection.execute(insert(table).values(**values, before=to_json(known["before"])).on_conflict_do_nothing())
        row = connection.execute(own).mappings().one()
        told = _said(number, known) if row["started"] == now else None
    return row["first"], row["started"], told


# -- how the attempt before it ended -----------------------------------------------------------------------------------

Row = Mapping[str, Any]


def _before(rows: Iterable[Row], number: int) -> dict[str, Any]:
    """Where an attempt begins, and what is known of the one before it: `rows` are of ranks, with their `last` step."""
    every = [row for row in rows if row["attempt"] < number]
    last = max((row["last"] for row in every if row["last"] is not None), default=-1)
    newest = max((row["attempt"] for row in every), default=0)
    those = sorted((row for row in every if row["attempt"] == newest), key=lambda row: row["rank"])
    exits = {}
    for row in those:
        if row["ended"] is not None and (ending := _exit(row)) is not None:
            exits[str(row["rank"])] = ending
    before = {
        "number": newest,
        "last_step": last,
        "ranks": len(those),
        "lost": [row["rank"] for row in those if row["ended"] is None][:MOST],
        "exits": dict(list(exits.items())[:MOST]),
    }
    return {"first": last + 1, "before": before}


def _exit(row: Row) -> dict[str, Any] | None:
    told = from_json(row["state"]).get("exit") or {}
    if not told.get("code") and not told.get("exception"):
        return None
    return {"code": told.get("code"), "exception": str(told.get("exception") or "")[:300] or None}


def _said(number: int, known: Mapping[str, Any]) -> str:
    return f"attempt {number} begins at step {known['first']}: {_words(known['before'])}"


def _words(before: Mapping[str, Any]) -> str:
    lost, exits = before.get("lost") or [], before.get("exits") or {}
    parts = []
    if lost:
        parts.append(f"{_named(lost)} broke off without an end")
    for rank, told in list(exits.items())[:3]:
        parts.append(f"rank {rank} ended with {told.get('exception') or 'code ' + str(told.get('code'))}")
    if len(exits) > 3:
        parts.append(f"so did {len(exits) - 3} more")
    return "; ".join(parts) or "the one before it ended, and was started again"


def _named(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:MOST]))
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}"


def _rows_of_table(connection: Connection, run: str) -> list[Row]:
    table = schema.ranks.c
    own = sa.select(table.rank, table.attempt, table.ended, table.state).where(table.run == run)
    rows = [dict(row) for row in connection.execute(own).mappings()]
    last: dict[int, int] = {}
    for each in (schema.segments.c, schema.buckets.c):
        ends = sa.select(each.rank, sa.func.max(each.last)).where(each.run == run).group_by(each.rank)
        for rank, end in connection.execute(ends):
            last[rank] = max(end, last.get(rank, end))
    return [{**row, "last": last.get(row["rank"])} for row in rows]


def _rows_of_files(folder: Folder) -> list[Row]:
    rows: list[Row] = []
    ranks, segments, buckets = (table.name for table in (schema.ranks, schema.segments, schema.buckets))
    last = (
        f"(SELECT max(last) FROM (SELECT max(last) AS last FROM {segments} UNION ALL SELECT max(last) FROM {buckets}))"
    )
    for file in folder.ranks().values():
        try:
            with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", 5.0, uri=True)) as connection:
                connection.row_factory = sqlite3.Row
                query = f"SELECT rank, attempt, ended, state, {last} AS last FROM {ranks}"
                rows += [dict(row) for row in connection.execute(query)]
        except (sqlite3.Error, OSError):
            continue  # a damaged one cannot say how far it was
    return rows
