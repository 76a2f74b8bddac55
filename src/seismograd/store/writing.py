"""One process's way into the store: batches go in whole, what grows old is thinned, and the run keeps to its limit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from seismograd.records import Finding, Reading, Severity
from seismograd.store import codec, schema
from seismograd.store.curves import FACTOR, Buckets, joined
from seismograd.store.layers import Samples, joined_samples
from seismograd.store.texts import from_json, to_json

if TYPE_CHECKING:
    from seismograd.store.recorder import Batch

SEALED = 512
"""Readings in a segment that is full, and buckets in a row."""
LEVELS = 7
"""Of buckets: in the last a column stands for two million steps."""
HEAD = 2
"""Segments at the beginning that stay whole."""
AROUND = 200
"""Steps before and after a finding that stay whole."""
PINS = 32
"""The findings for which that holds."""
ROW = 64
"""Samples in a row."""
ROWS = 16
"""Rows of samples: when there are more, two become one."""
NAMES = 2000
"""Names of scalars that are listed."""
EVENTS = 20_000
"""The newest events stay."""
PULSE = 2.0
"""Seconds: a run that has nothing to write says at least so often that it lives."""

SHARES = {"readings": 0.25, "tables": 0.25, "buckets": 0.30, "samples": 0.15}
"""Of the limit. When one is used up its oldest rows go; the rest is for findings, events and the report."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A full segment in the store."""

    id: int
    first: int
    last: int
    readings: int
    """Bytes, without the tables."""
    tables: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """A row of buckets or samples in the store."""

    id: int
    last: int
    size: int


class Writing:
    """Writes one rank of one run. What fails can be tried again: nothing is written twice, nothing is forgotten."""

    def __init__(self, url: sa.URL, run: str, name: str, *, rank: int, limit: int, about: Mapping[str, Any]) -> None:
        self._url, self._run, self._name, self._rank, self._about = url, run, name, rank, about
        self._shares = {kind: int(share * limit) for kind, share in SHARES.items()}
        self._engine: Engine | None = None
        self._is_known = False
        self._batch = self._request = 0
        self._pulse = 0.0
        self._open: list[tuple[Reading, float]] = []
        """The readings that lie in `_drafts`: segments that are not full."""
        self._drafts: list[int] = []
        self._segments: list[Segment] = []
        self._last = -1
        """The last step that lies in a full segment."""
        self._pending: list[list[Buckets]] = [[] for _ in range(LEVELS + 2)]
        """Buckets by level that are not yet a full row."""
        self._buckets: list[list[Row]] = [[] for _ in range(LEVELS + 2)]
        self._ends = [-1] * (LEVELS + 2)
        self._gap = 1
        self._sampled: list[Samples] = []
        self._samples: list[Row] = []
        self._names: dict[str, None] = {}
        self._tables: dict[str, list[str]] = {}
        self._pins: dict[tuple[Any, ...], int] = {}
        self._events = 0
        self._told = 0
        """Bytes of findings, events and report."""

    # -- the connection ----------------------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """Lets go of the connection; the next batch makes a new one."""
        if self._engine is not None:
            with contextlib.suppress(Exception):
                self._engine.dispose()
            self._engine = None

    def _connected(self) -> Engine:
        if self._engine is None:
            self._engine = schema.connect(self._url, writes=True)
        if not self._is_known:
            with self._engine.begin() as connection:
                self._introduce(connection)
            self._is_known = True
        return self._engine

    def _introduce(self, connection: Connection) -> None:
        """The rows of the run and the rank; the run's may be there already, by another rank."""
        now = time.time()
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        run = {"id": self._run, "name": self._name, "started": now, "about": to_json(self._about)}
        connection.execute(insert(schema.runs).values(run).on_conflict_do_nothing())
        rank = {"run": self._run, "rank": self._rank, "started": now, "heartbeat": now}
        connection.execute(insert(schema.ranks).values(rank).on_conflict_do_nothing())

    # -- batches -----------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        """Writes the batch in one transaction, and then thins what has grown old."""
        if not batch and time.monotonic() < self._pulse + PULSE:
            return
        engine = self._connected()
        readings = self._open + batch.readings
        full = len(readings) - len(readings) % SEALED if len(readings) >= SEALED else 0
        sealed = [self._encoded(readings[at : at + SEALED]) for at in range(0, full, SEALED)]
        fresh = readings[full:] if full else batch.readings
        draft = self._encoded(fresh) if fresh else None
        for part in (*sealed, *([draft] if draft else [])):
            self._learn(part)
        with engine.begin() as connection:
            if (
                connection.execute(self._mine(sa.select(schema.ranks.c.batch), schema.ranks)).scalar()
                == self._batch + 1
            ):
                found = self._written_before(connection, len(sealed), draft is not None)
            else:
                found = self._insert(connection, batch, sealed, draft)
        self._batch += 1
        self._pulse = time.monotonic()
        self._pin(batch.findings)
        ids, draft_id = found
        if full:
            self._open, self._drafts = readings[full:], []
            for number, part in zip(ids, sealed, strict=True):
                self._seal(number, part)
        else:
            self._open = readings
        if draft_id is not None:
            self._drafts.append(draft_id)
        self._thin(engine)

    def _encoded(self, entries: Sequence[tuple[Reading, float]]) -> _Part:
        readings = [reading for reading, _ in entries]
        steps = [reading.step for reading in readings]
        return _Part(codec.encode(readings, [when for _, when in entries]), len(readings), max(steps))

    def _learn(self, part: _Part) -> None:
        for name in part.encoded.names:
            if name not in self._names and len(self._names) < NAMES:
                self._names[name] = None
        for kind, columns in part.encoded.measures.items():
            known = self._tables.setdefault(kind, [])
            known += [column for column in columns if column not in known]

    def _insert(
        self, connection: Connection, batch: Batch, sealed: Sequence[_Part], draft: _Part | None
    ) -> tuple[list[int], int | None]:
        first = self._last + 1
        ids = []
        if sealed and self._drafts:
            connection.execute(schema.segments.delete().where(schema.segments.c.id.in_(self._drafts)))
        for part in sealed:
            ids.append(self._insert_segment(connection, part, first, True))
            first = max(part.last + 1, first)
        number = None
        if draft is not None:
            if not sealed and self._open:
                first = max(first, max(reading.step for reading, _ in self._open) + 1)
            number = self._insert_segment(connection, draft, first, False)
        for finding in batch.findings.values():
            self._upsert(connection, finding)
        if batch.events:
            connection.execute(schema.events.insert(), [self._event(event) for event in batch.events])
        self._update_rank(connection, batch)
        return ids, number

    def _insert_segment(self, connection: Connection, part: _Part, first: int, sealed: bool) -> int:
        encoded = part.encoded
        row = {
            "run": self._run,
            "rank": self._rank,
            "first": min(first, part.last),
            "last": part.last,
            "count": part.count,
            "sealed": sealed,
            "whole": True,
            "bytes": encoded.size,
            "scalars": encoded.scalars,
            "tables": encoded.tables,
            "facts": encoded.facts,
        }
        return _key(connection.execute(schema.segments.insert().values(row)))

    def _written_before(self, connection: Connection, sealed: int, has_draft: bool) -> tuple[list[int], int | None]:
        """The rows of this batch: it was written, but the connection broke before that was heard."""
        column = schema.segments.c
        newest = self._mine(sa.select(column.id), schema.segments).order_by(column.id.desc()).limit(sealed + has_draft)
        ids = sorted(connection.execute(newest).scalars())
        return ids[:sealed], ids[-1] if has_draft else None

    def _upsert(self, connection: Connection, finding: Finding) -> None:
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        row: dict[str, Any] = {
            "run": self._run,
            "rank": finding.rank,
            "key": to_json(finding.key),
            "severity": finding.severity.value,
            "changed": self._batch + 1,
            "data": to_json(finding.to_dict()),
        }
        changed = {name: row[name] for name in ("severity", "changed", "data")}
        statement = insert(schema.findings).values(row)
        connection.execute(statement.on_conflict_do_update(index_elements=["run", "rank", "key"], set_=changed))
        self._told += len(row["data"])

    def _event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        known = ("time", "timestamp", "event_type", "message", "level", "rank", "data")
        data = {**{key: value for key, value in event.items() if key not in known}, **(event.get("data") or {})}
        row = {
            "run": self._run,
            "rank": event.get("rank", self._rank),
            "time": event["time"],
            "event_type": str(event.get("event_type", "event")),
            "level": str(event.get("level", "info")),
            "message": str(event.get("message", "")),
            "data": to_json(data),
        }
        self._events += 1
        return row

    def _update_rank(self, connection: Connection, batch: Batch) -> None:
        now = time.time()
        values: dict[str, Any] = {
            "heartbeat": now,
            "batch": self._batch + 1,
            "bytes": self.size,
            "names": to_json(list(self._names)),
            "tables": to_json(self._tables),
        }
        if batch.state:
            values["state"] = to_json(batch.state)
        if batch.report is not None:
            values |= {"report": to_json(batch.report), "ended": now}
        connection.execute(self._mine(schema.ranks.update(), schema.ranks).values(values))

    def _mine(self, statement: Any, table: sa.Table) -> Any:
        return statement.where(table.c.run == self._run, table.c.rank == self._rank)

    @property
    def size(self) -> int:
        """Bytes of the rank in the store, about."""
        rows = sum(row.size for rows in (*self._buckets, self._samples) for row in rows)
        return rows + sum(each.readings + each.tables for each in self._segments) + self._told

    # -- requests ----------------------------------------------------------------------------------------------------

    def asked(self) -> Iterator[tuple[int, str, Any]]:
        """What was asked of the run since the last look."""
        table = schema.requests
        with self._connected().connect() as connection:
            new = sa.select(table).where(table.c.run == self._run, table.c.id > self._request).order_by(table.c.id)
            rows = connection.execute(new).mappings().all()
        for row in rows:
            self._request = row["id"]
            if row["taken"] is None or self._rank:
                yield row["id"], row["kind"], from_json(row["value"])

    def took(self, number: int) -> None:
        self._tell(number, taken=time.time())

    def answered(self, number: int, answer: str) -> None:
        self._tell(number, answer=answer)

    def _tell(self, number: int, **values: Any) -> None:
        """The first rank speaks for all."""
        if self._rank == 0:
            with self._connected().begin() as connection:
                mine = schema.requests.update().where(schema.requests.c.id == number)
                connection.execute(mine.values(**values))

    # -- thinning ----------------------------------------------------------------------------------------------------

    def _pin(self, findings: Mapping[tuple[Any, ...], Finding]) -> None:
        for key, finding in findings.items():
            if finding.severity is not Severity.INFO and key not in self._pins and len(self._pins) < PINS:
                self._pins[key] = finding.step

    def _seal(self, number: int, part: _Part) -> None:
        """A segment is full: its scalars become buckets, its tables samples."""
        encoded = part.encoded
        tables = len(encoded.tables or b"")
        self._segments.append(Segment(number, self._last + 1, part.last, encoded.size - tables, tables))
        self._last = max(self._last, part.last)
        self._pending[1].append(Buckets.of_readings(encoded.scalars))
        if encoded.tables is not None:
            steps = codec.Blob(encoded.scalars).array("step")
            self._sampled.append(Samples.of_readings(steps, encoded.tables).folded(self._gap))

    def _thin(self, engine: Engine) -> None:
        for level in range(1, LEVELS + 1):
            self._write_buckets(engine, level)
        self._write_samples(engine)
        self._forget(engine)

    def _write_buckets(self, engine: Engine, level: int) -> None:
        """Full rows of buckets go into the store, and one level up."""
        width = FACTOR**level
        if sum(map(len, self._pending[level])) < SEALED * FACTOR:
            return
        buckets = joined(self._pending[level]).folded(width)
        self._pending[level] = [buckets]
        while len(buckets) > SEALED:  # the last may still grow
            row = buckets.part(0, SEALED)
            last = int(row.last[-1])
            data = row.pack()
            values = {"run": self._run, "rank": self._rank, "level": level, "bytes": len(data), "data": data}
            with engine.begin() as connection:
                place = {"first": self._ends[level] + 1, "last": last}
                number = _key(connection.execute(schema.buckets.insert().values(values | place)))
            self._buckets[level].append(Row(number, last, len(data)))
            self._ends[level] = last
            if level < LEVELS:
                self._pending[level + 1].append(row)
            buckets = buckets.part(SEALED, len(buckets))
            self._pending[level] = [buckets]

    def _write_samples(self, engine: Engine) -> None:
        if sum(map(len, self._sampled)) <= ROW:
            return
        sampled = joined_samples(self._sampled).folded(self._gap)
        if len(sampled) > ROW:
            whole = len(sampled) - 1 - (len(sampled) - 1) % ROW
            with engine.begin() as connection:
                rows = self._insert_samples(connection, sampled.part(0, whole))
            self._samples += rows
            self._sampled = [sampled.part(whole, len(sampled))]
        if len(self._samples) > ROWS or self._size_of_samples() > self._shares["samples"]:
            self._halve_samples(engine)

    def _halve_samples(self, engine: Engine) -> None:
        """Every two become one."""
        if len(self._samples) < 2:
            return
        column = schema.samples.c
        mine = self._mine(sa.select(column.data), schema.samples).order_by(column.first)
        with engine.begin() as connection:
            every = joined_samples([Samples.unpack(data) for data in connection.execute(mine).scalars()])
            gap = self._gap * 2
            thinned = every.folded(gap)
            while len(thinned) > len(every) // 2 and gap < 1 << 60:  # they lay further apart than that
                gap *= 2
                thinned = every.folded(gap)
            connection.execute(self._mine(schema.samples.delete(), schema.samples))
            rows = self._insert_samples(connection, thinned)
        self._samples, self._gap = rows, gap

    def _insert_samples(self, connection: Connection, samples: Samples) -> list[Row]:
        rows = []
        for at in range(0, len(samples), ROW):
            part = samples.part(at, at + ROW)
            data, last = part.pack(), int(part.last.max())
            values = {"run": self._run, "rank": self._rank, "first": int(part.first[0]), "last": last}
            inserted = schema.samples.insert().values(**values, bytes=len(data), data=data)
            rows.append(Row(_key(connection.execute(inserted)), last, len(data)))
        return rows

    def _size_of_samples(self) -> int:
        return sum(row.size for row in self._samples)

    def _forget(self, engine: Engine) -> None:
        """What is over its share goes, the oldest first, where something coarser holds it."""
        sampled = self._samples[-1].last if self._samples else -1
        over = sum(each.tables for each in self._segments) - self._shares["tables"]
        if over > 0:
            bare = self._oldest(over, lambda each: each.tables, sampled)
            with engine.begin() as connection:
                own = schema.segments.c.id.in_([each.id for each in bare])
                connection.execute(schema.segments.update().where(own).values(tables=None, whole=False))
            gone = {each.id for each in bare}
            self._segments = [
                replace(each, tables=0, whole=False) if each.id in gone else each for each in self._segments
            ]
        over = sum(each.readings for each in self._segments) - self._shares["readings"]
        if over > 0:
            old = self._oldest(over, lambda each: each.readings, self._ends[1])
            gone = {each.id for each in old}
            with engine.begin() as connection:
                connection.execute(schema.segments.delete().where(schema.segments.c.id.in_(gone)))
            self._segments = [each for each in self._segments if each.id not in gone]
        for level in range(1, LEVELS):
            rows = self._buckets[level]
            over = sum(row.size for row in rows) - self._shares["buckets"] // 4
            old_rows = []
            for row in rows:
                if over <= 0 or row.last > self._ends[level + 1]:
                    break
                old_rows.append(row)
                over -= row.size
            if old_rows:
                with engine.begin() as connection:
                    ids = [row.id for row in old_rows]
                    connection.execute(schema.buckets.delete().where(schema.buckets.c.id.in_(ids)))
                self._buckets[level] = rows[len(old_rows) :]
        if self._events > EVENTS + 1000:
            self._forget_events(engine)

    def _oldest(self, size: int, weight: Any, until: int) -> list[Segment]:
        """Segments that together weigh `size`; the first ones and those around findings last."""
        there = [each for each in self._segments if weight(each) and each.last <= until]
        chosen: list[Segment] = []
        for each in sorted(there, key=lambda each: (self._is_kept(each), each.first)):
            if size <= 0:
                break
            chosen.append(each)
            size -= weight(each)
        return chosen

    def _is_kept(self, segment: Segment) -> bool:
        if segment.first < HEAD * SEALED:
            return True
        return any(segment.first - AROUND <= step <= segment.last + AROUND for step in self._pins.values())

    def _forget_events(self, engine: Engine) -> None:
        column = schema.events.c
        mine = self._mine(sa.select(column.id), schema.events)
        with engine.begin() as connection:
            oldest = connection.execute(mine.order_by(column.id.desc()).offset(EVENTS).limit(1)).scalar()
            if oldest is not None:
                connection.execute(self._mine(schema.events.delete(), schema.events).where(column.id <= oldest))
        self._events = EVENTS


@dataclass(frozen=True, slots=True)
class _Part:
    """Encoded readings, how many they are, and the last of their steps."""

    encoded: codec.Encoded
    count: int
    last: int


def _key(result: sa.CursorResult[Any]) -> int:
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])
