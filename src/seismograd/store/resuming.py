"""What a process finds in the store of a rank that goes on there: another one wrote it, or the disk was away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from seismograd.records import Finding, Reading, Severity
from seismograd.reports.report import finding_of
from seismograd.store import codec, schema
from seismograd.store.retention import OVERHEAD, PINS, Retention
from seismograd.store.texts import from_json


@dataclass(frozen=True, slots=True)
class Stored:
    """The rows of a rank, as far as one has to know them to go on."""

    batch: int
    attempt: int
    number: int
    """Of the next segment."""
    last: int | None
    """The last step."""
    names: dict[str, None]
    tables: dict[str, dict[str, None]]
    findings: int
    texts: int
    """Their bytes."""
    grave: dict[tuple[Any, ...], Finding]
    """The first of them that are more than information."""
    events: list[int]
    """The bytes of each, oldest first."""
    drafts: list[list[tuple[Reading, float]]]
    """Readings in segments that are not full."""


def stored(connection: Connection, run: str, rank: int, row: Any) -> Stored:
    """What is there of a rank, whose row is `row`."""
    segment, event, finding = schema.segments.c, schema.events.c, schema.findings.c

    def mine(statement: Any, table: Any) -> Any:
        return statement.where(table.run == run, table.rank == rank)

    ends = [
        connection.execute(mine(sa.select(sa.func.max(table.last)), table)).scalar()
        for table in (segment, schema.buckets.c)
    ]
    number = connection.execute(mine(sa.select(sa.func.max(segment.number)), segment)).scalar()
    open_ones = mine(sa.select(schema.segments), segment).where(segment.sealed.is_(False)).order_by(segment.number)
    sizes = mine(sa.select(sa.func.length(event.message) + sa.func.length(event.data)), event).order_by(event.id)
    texts = mine(sa.select(sa.func.count(), sa.func.sum(sa.func.length(finding.data))), finding)
    findings, letters = connection.execute(texts).one()
    grave = mine(sa.select(finding.key, finding.data), finding).where(finding.severity != Severity.INFO.value)
    grave = grave.order_by(finding.id).limit(PINS)
    return Stored(
        batch=row["batch"],
        attempt=row["attempt"],
        number=0 if number is None else number + 1,
        last=max((end for end in ends if end is not None), default=None),
        names=dict.fromkeys(from_json(row["names"])),
        tables={kind: dict.fromkeys(columns) for kind, columns in from_json(row["tables"]).items()},
        findings=findings,
        texts=int(letters or 0) + findings * OVERHEAD,
        grave={("before", key): found for key, data in connection.execute(grave) if (found := _finding(data))},
        events=[size + OVERHEAD for size in connection.execute(sizes).scalars()],
        drafts=[_entries(each) for each in connection.execute(open_ones).mappings()],
    )


def _finding(data: str) -> Finding | None:
    try:
        return finding_of(from_json(data))
    except (KeyError, TypeError, ValueError):
        return None


def _entries(row: Any) -> list[tuple[Reading, float]]:
    try:
        times = codec.Blob(row["scalars"]).array("time").tolist()
        readings = codec.decode(row["scalars"], row["tables"], row["facts"])
        return list(zip(readings, times, strict=True))
    except (codec.DamagedError, ValueError):
        return []


def kept(connection: Connection, run: str, rank: int, limit: int, names: Mapping[str, Any]) -> Retention:
    """The retention of what is there."""
    found = Retention(run, rank, limit)
    found.take(connection, names)
    return found
