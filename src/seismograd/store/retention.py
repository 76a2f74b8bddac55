"""What of a run stays, at which resolution: the newest whole, what is older thinned, all of it within a limit in bytes.

Scalars of full segments are folded into buckets, level by level; tables into samples. A class of rows that has used up
its share of the limit loses its oldest, and only what something coarser holds. The first segments and those around
findings go last. Everything here can be done twice: what an attempt left behind that broke off is written over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from seismograd.records import Finding, Severity
from seismograd.store import codec, schema
from seismograd.store.curves import FACTOR, Buckets, joined
from seismograd.store.layers import Samples, joined_samples

_T = TypeVar("_T")

SEALED = 512
"""Readings in a full segment, and the most buckets in a row."""
LEVELS = 7
"""Of buckets: in the last a column stands for two million steps."""
FEWEST = 16
"""Buckets in a row, at least."""
HEAD = 2
"""Segments at the beginning that stay whole."""
AROUND = 200
"""Steps before and after a finding that stay whole."""
PINS = 32
"""The findings for which that holds."""
ROW = 64
"""Samples in a row, at most."""
ROWS = 16
"""Full rows of samples: when there are more, they are thinned."""
OVERHEAD = 200
"""Bytes that a row takes besides its blobs, about."""

SHARES = {"readings": 0.25, "tables": 0.25, "buckets": 0.30, "samples": 0.15}
"""Of the limit; the rest is for findings, events and the report."""

_BUCKET = 32
"""Bytes that one scalar takes in a bucket, at most: four numbers that hardly compress."""
_LIKELY = 5
"""Levels of buckets that a run of some million steps has."""
MOST_NAMES = 1000
is_chief = re.compile(r"(val_)?loss(/\d)?|grad/norm(/\d)?|lr/\d").fullmatch
"""Whether a scalar is one of those that no run may lose, however many others there are."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A full segment in the store."""

    number: int
    first: int
    last: int
    readings: int
    """Bytes, without the tables."""
    tables: int
    stays: bool
    """As long as it can: it is one of the first."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of buckets or samples in the store."""

    first: int
    last: int
    count: int
    size: int


class Retention:
    """The rows of one rank of one run, and what becomes of them."""

    def __init__(self, run: str, rank: int, limit: int) -> None:
        self._run, self._rank = run, rank
        self._shares = {kind: int(share * limit) for kind, share in SHARES.items()}
        self.most_names = min(MOST_NAMES, self._shares["buckets"] // (_LIKELY * FACTOR * FEWEST * _BUCKET))
        """The scalars that are thinned with age: the chief ones, the first that came. Others go with their readings."""
        self._segments: list[Segment] = []
        self._pending: list[list[Buckets]] = [[] for _ in range(LEVELS + 2)]
        """Buckets by level that are not yet a full row."""
        self._buckets: list[list[Row]] = [[] for _ in range(LEVELS + 2)]
        self._gap = 1
        self._sampled: list[Samples] = []
        """Samples behind the last full row."""
        self._samples: list[Row] = []
        """The full rows, and perhaps one more, which holds what is in `_sampled`."""
        self._full = 0
        """How many of them are full."""
        self._pins: dict[tuple[Any, ...], int] = {}
        self._added = 0
        self.size = 0
        """Bytes in the store."""
        self.is_due = False
        """Whether there is something to be thinned."""

    # -- what is there -----------------------------------------------------------------------------------------------

    def take(self, connection: Connection, names: Mapping[str, Any]) -> None:
        """What is in the store already, by another process: from now on it is thinned here."""
        segment, bucket, sample = schema.segments.c, schema.buckets.c, schema.samples.c
        lengths = (sa.func.length(segment.scalars), sa.func.length(segment.facts), sa.func.length(segment.tables))
        own = sa.select(segment.number, segment.first, segment.last, *lengths)
        own = self._mine(own, schema.segments).where(segment.sealed).order_by(segment.number)
        for number, first, last, scalars, facts, tables in connection.execute(own):
            readings = scalars + (facts or 0) + OVERHEAD
            self._segments.append(Segment(number, first, last, readings, tables or 0, stays=self._added < HEAD))
            self._added += 1
        own = self._mine(sa.select(bucket.level, bucket.first, bucket.last, bucket.bytes), schema.buckets)
        for level, first, last, weight in connection.execute(own.order_by(bucket.level, bucket.first)):
            self._buckets[level].append(Row(first, last, 0, weight + OVERHEAD))
        own = self._mine(sa.select(sample.first, sample.last, sample.bytes, sample.data), schema.samples)
        for first, last, weight, data in connection.execute(own.order_by(sample.first)):
            read = _read_or_none(Samples.unpack, data)
            while read is not None and len(read) and self._gap < int((read.last - read.first).max()) + 1:
                self._gap *= 2
            self._samples.append(Row(first, last, 0 if read is None else len(read), weight + OVERHEAD))
        self._full = len(self._samples)
        self._take_pending(connection, names)
        self.size = sum(each.readings + each.tables for each in self._segments)
        self.size += sum(row.size for rows in (*self._buckets, self._samples) for row in rows)
        self.is_due = bool(self._segments)

    def _take_pending(self, connection: Connection, names: Mapping[str, Any]) -> None:
        """What is behind the last row of each level, from the one that is finer."""
        known = self._known(names)
        segment, bucket = schema.segments.c, schema.buckets.c
        own = self._mine(sa.select(segment.scalars, segment.tables), schema.segments).where(segment.sealed)
        last = min(self._ends(1), self._last_sample)
        for scalars, tables in connection.execute(own.where(segment.last > last).order_by(segment.number)):
            read = _read_or_none(Buckets.of_readings, scalars, known)
            if read is None:
                continue
            self._pending[1].append(read.within(self._ends(1) + 1, 1 << 62).folded(FACTOR))
            if tables is not None:
                steps = codec.Blob(scalars).array("step")
                sampled = _read_or_none(Samples.of_readings, steps, tables, None, self._gap)
                if sampled is not None:
                    self._sampled.append(sampled.within(self._last_sample + 1, 1 << 62))
        for level in range(2, LEVELS + 1):
            own = self._mine(sa.select(bucket.data), schema.buckets).where(bucket.level == level - 1)
            for data in connection.execute(own.where(bucket.last > self._ends(level)).order_by(bucket.first)).scalars():
                finer = _read_or_none(Buckets.unpack, data)
                if finer is not None:
                    self._pending[level].append(finer.within(self._ends(level) + 1, 1 << 62).folded(FACTOR**level))

    # -- what comes --------------------------------------------------------------------------------------------------

    def pin(self, findings: Mapping[tuple[Any, ...], Finding]) -> None:
        """What is around them stays whole."""
        for key, finding in findings.items():
            if finding.severity is not Severity.INFO and key not in self._pins and len(self._pins) < PINS:
                self._pins[key] = finding.step

    def add(self, number: int, first: int, last: int, encoded: codec.Encoded, names: Mapping[str, Any]) -> None:
        """A segment is full: the scalars among `names` become buckets, its tables samples."""
        tables = len(encoded.tables or b"")
        readings = encoded.size - tables + OVERHEAD
        self._segments.append(Segment(number, first, last, readings, tables, stays=self._added < HEAD))
        self._added += 1
        self.size += readings + tables
        known = set(self._known(names))
        kept = [name for name in encoded.names if name in known]
        self._pending[1] = [*self._pending[1], Buckets.of_readings(encoded.scalars, kept).folded(FACTOR)]
        if encoded.tables is not None:
            steps = codec.Blob(encoded.scalars).array("step")
            self._sampled = [*self._sampled, Samples.of_readings(steps, encoded.tables, gap=self._gap)]
        self.is_due = True

    def _known(self, names: Mapping[str, Any]) -> list[str]:
        return sorted(names, key=lambda name: not is_chief(name))[: self.most_names]

    # -- thinning ----------------------------------------------------------------------------------------------------

    def thinned(self, begin: Callable[[], Any]) -> Retention:
        """This after thinning, in a transaction of its own; if that fails, this is still as it was."""
        fresh = Retention.__new__(Retention)
        fresh.__dict__.update(self.__dict__)
        fresh._segments, fresh._samples = list(self._segments), list(self._samples)
        fresh._pending, fresh._buckets = [*map(list, self._pending)], [*map(list, self._buckets)]
        with begin() as connection:
            for level in range(1, LEVELS + 1):
                fresh._write_buckets(connection, level)
            fresh._write_samples(connection)
            fresh._forget_tables(connection)
            fresh._forget_readings(connection)
            fresh._forget_buckets(connection)
        fresh.is_due = False
        fresh.size = sum(each.readings + each.tables for each in fresh._segments)
        fresh.size += sum(row.size for rows in (*fresh._buckets, fresh._samples) for row in rows)
        return fresh

    def _write_buckets(self, connection: Connection, level: int) -> None:
        """Full rows of buckets go into the store, and one level up."""
        pending = self._pending[level]
        most = self._columns(pending)
        if sum(map(len, pending)) <= most:
            return
        buckets = joined(pending).folded(FACTOR**level)
        while len(buckets) > most:  # the last may still grow
            row, buckets = buckets.part(0, most), buckets.part(most, len(buckets))
            self._insert_buckets(connection, level, row)
            if level < LEVELS:
                self._pending[level + 1].append(row.folded(FACTOR ** (level + 1)))
        self._pending[level] = [buckets]

    def _columns(self, parts: list[Buckets]) -> int:
        """How many buckets make a row: some rows of each level have to find place in their share."""
        names = max((len(part.names) for part in parts), default=1) or 1
        room = self._shares["buckets"] // (2 * LEVELS * FACTOR)
        return max(FEWEST, min(SEALED, room // (_BUCKET * names)))

    def _insert_buckets(self, connection: Connection, level: int, buckets: Buckets) -> None:
        rows, table, data = self._buckets[level], schema.buckets, buckets.pack()
        first = rows[-1].last + 1 if rows else int(buckets.first.min())
        last = max(first, int(buckets.last.max()))
        mine = self._mine(table.delete(), table).where(table.c.level == level, table.c.first >= first)
        connection.execute(mine)
        place = {"run": self._run, "rank": self._rank, "level": level, "first": first, "last": last}
        connection.execute(table.insert().values(**place, bytes=len(data), data=data))
        rows.append(Row(first, last, len(buckets), len(data) + OVERHEAD))

    def _write_samples(self, connection: Connection) -> None:
        pending = joined_samples(self._sampled).folded(self._gap)
        most = self._samples_in_a_row(pending)
        if len(pending) > most:
            whole = len(pending) - 1 - (len(pending) - 1) % most
            self._remove_tail(connection)
            self._insert_samples(connection, pending.part(0, whole), most)
            self._full = len(self._samples)
            pending = pending.part(whole, len(pending))
        self._sampled = [pending] if len(pending) else []
        full = self._samples[: self._full]
        if len(full) > ROWS or sum(row.size for row in full) > self._shares["samples"]:
            self._halve_samples(connection)

    def _samples_in_a_row(self, samples: Samples) -> int:
        cells = sum(len(table) for table in samples.values.values()) or 1
        return max(1, min(ROW, self._shares["samples"] // ROWS // (4 * cells)))

    def _insert_samples(self, connection: Connection, samples: Samples, most: int) -> None:
        for at in range(0, len(samples), most):
            part = samples.part(at, at + most)
            first, last, data = int(part.first[0]), int(part.last.max()), part.pack()
            place = {"run": self._run, "rank": self._rank, "first": first, "last": last}
            connection.execute(schema.samples.insert().values(**place, bytes=len(data), data=data))
            self._samples.append(Row(first, last, len(part), len(data) + OVERHEAD))

    def _remove_tail(self, connection: Connection) -> None:
        """What is behind the full rows: it is in memory too."""
        last = self._samples[self._full - 1].last if self._full else -1
        connection.execute(self._mine(schema.samples.delete(), schema.samples).where(schema.samples.c.first > last))
        del self._samples[self._full :]

    def _halve_samples(self, connection: Connection) -> None:
        """Neighbours become one, until half of them are left; a row at a time, for them not to be all in memory."""
        self._remove_tail(connection)
        rows = list(self._samples)
        spacing = (rows[-1].last - rows[0].first + 1) / max(1, sum(row.count for row in rows))
        while self._gap < 2 * spacing:
            self._gap *= 2
        column = schema.samples.c
        mine = self._mine(sa.select(column.id), schema.samples).order_by(column.first)
        ids = connection.execute(mine).scalars().all()
        self._samples, self._full = [], 0
        carried: list[Samples] = []
        for number in ids:
            data = connection.execute(sa.select(column.data).where(column.id == number)).scalar_one()
            connection.execute(schema.samples.delete().where(column.id == number))
            try:
                read = Samples.unpack(data)
            except codec.DamagedError:
                continue
            together = joined_samples([*carried, read]).folded(self._gap)
            most = self._samples_in_a_row(together)
            whole = max(0, len(together) - 1) // most * most
            self._insert_samples(connection, together.part(0, whole), most)
            carried = [together.part(whole, len(together))]
        self._full = len(self._samples)
        self._sampled = [*carried, *self._sampled]
        self._write_tail(connection)

    # -- forgetting --------------------------------------------------------------------------------------------------

    def _forget_tables(self, connection: Connection) -> None:
        over = sum(each.tables for each in self._segments) - self._shares["tables"]
        if over <= 0:
            return
        bare = self._oldest(over, lambda each: each.tables, self._last_sample)
        if sum(each.tables for each in bare) < over and self._sampled:
            self._write_tail(connection)
            bare = self._oldest(over, lambda each: each.tables, self._last_sample)
        gone = {each.number for each in bare}
        connection.execute(self._those(schema.segments.update(), gone).values(tables=None, whole=False))
        self._segments = [replace(each, tables=0) if each.number in gone else each for each in self._segments]

    @property
    def _last_sample(self) -> int:
        return self._samples[-1].last if self._samples else -1

    def _write_tail(self, connection: Connection) -> None:
        """The samples that do not fill a row yet, as a row that will be written again."""
        self._remove_tail(connection)
        pending = joined_samples(self._sampled).folded(self._gap)
        if len(pending):
            self._insert_samples(connection, pending, len(pending))
        self._sampled = [pending]

    def _forget_readings(self, connection: Connection) -> None:
        over = sum(each.readings for each in self._segments) - self._shares["readings"]
        if over <= 0:
            return
        old = self._oldest(over, lambda each: each.readings, self._ends(1))
        gone = {each.number for each in old}
        connection.execute(self._those(schema.segments.delete(), gone))
        self._segments = [each for each in self._segments if each.number not in gone]

    def _oldest(self, size: int, weight: Callable[[Segment], int], until: int) -> list[Segment]:
        """Segments that together weigh `size`; those that stay as long as they can come last."""
        there = [each for each in self._segments if weight(each) and each.last <= until]
        chosen: list[Segment] = []
        for each in sorted(there, key=lambda each: (self._stays(each), each.number)):
            if size <= 0:
                break
            chosen.append(each)
            size -= weight(each)
        return chosen

    def _stays(self, segment: Segment) -> bool:
        pinned = (segment.first - AROUND <= step <= segment.last + AROUND for step in self._pins.values())
        return segment.stays or any(pinned)

    def _forget_buckets(self, connection: Connection) -> None:
        """From the level that takes most, so that each keeps about as much."""
        table = schema.buckets
        sizes = [sum(row.size for row in rows) for rows in self._buckets]
        while sum(sizes) > self._shares["buckets"]:
            held = [level for level in range(1, LEVELS) if self._is_held(level)]
            if not held:
                return
            level = max(held, key=lambda each: sizes[each])
            row = self._buckets[level].pop(0)
            sizes[level] -= row.size
            old = self._mine(table.delete(), table).where(table.c.level == level, table.c.last <= row.last)
            connection.execute(old)

    def _is_held(self, level: int) -> bool:
        """Whether the oldest row of a level is in the next one too."""
        rows = self._buckets[level]
        return len(rows) > 1 and rows[0].last <= self._ends(level + 1)

    def _ends(self, level: int) -> int:
        """The last step that is in the rows of a level."""
        return self._buckets[level][-1].last if self._buckets[level] else -1

    def _mine(self, statement: Any, table: sa.Table) -> Any:
        return statement.where(table.c.run == self._run, table.c.rank == self._rank)

    def _those(self, statement: Any, numbers: set[int]) -> Any:
        return self._mine(statement, schema.segments).where(schema.segments.c.number.in_(numbers))


def _read_or_none(read: Callable[..., _T], *data: Any) -> _T | None:
    try:
        return read(*data)
    except codec.DamagedError:
        return None
