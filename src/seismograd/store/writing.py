"""One process's way into the store: batches go in whole and once, however often they have to be tried."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from seismograd.records import Finding, Reading
from seismograd.store import codec, forks, schema
from seismograd.store.attempts import agreed
from seismograd.store.recorder import weight
from seismograd.store.resuming import kept, stored
from seismograd.store.retention import OVERHEAD, SEALED, SHARES, Retention, is_chief
from seismograd.store.shared import Folder
from seismograd.store.texts import from_json, plain, to_json

if TYPE_CHECKING:
    from seismograd.store.recorder import Batch

CELLS = 2_000_000
"""Numbers in the tables of a segment: with more of them it is full. A small limit wants smaller segments."""
NAMES = 2000
"""Names of scalars that are listed."""
EVENTS = 20_000
"""The newest events stay."""
FINDINGS = 2000
LONGEST = 4000
"""Characters of a message that are kept."""
LONGEST_KEY = 1000
"""Characters of a finding's key that are written out."""
PULSE = 2.0
"""Seconds: a run that has nothing to write says at least so often that it lives."""
TOLD = 0.02
"""Of the limit: what events may take, and what the report may."""


# Made once: to make a statement takes longer than to execute it.
_MY_RUN: sa.BindParameter[str] = sa.bindparam("my_run")
_MY_RANK: sa.BindParameter[int] = sa.bindparam("my_rank")


def _mine(statement: Any, table: sa.Table) -> Any:
    return statement.where(table.c.run == _MY_RUN, table.c.rank == _MY_RANK)


_ROW = _mine(sa.select(*(column for column in schema.ranks.c if column.name not in ("state", "report"))), schema.ranks)
_RANK = _mine(schema.ranks.update(), schema.ranks).where(
    schema.ranks.c.batch == sa.bindparam("before"), schema.ranks.c.owner == sa.bindparam("me")
)
_SEGMENTS, _EVENTS = schema.segments.insert(), schema.events.insert()
_NO_DRAFTS = _mine(schema.segments.delete(), schema.segments).where(schema.segments.c.sealed.is_(False))
_REQUESTS = (
    sa.select(schema.requests)
    .where(schema.requests.c.run == _MY_RUN, schema.requests.c.id > sa.bindparam("seen"))
    .order_by(schema.requests.c.id)
)


def load(url: sa.URL) -> None:
    """Imports what it takes to write there."""
    with contextlib.suppress(ImportError):  # told when it is used
        url.get_dialect().import_dbapi()


@dataclass(frozen=True, slots=True)
class _Part:
    """Encoded readings, as they become a segment."""

    number: int
    first: int
    last: int
    count: int
    sealed: bool
    encoded: codec.Encoded


class Writing:
    """Writes one rank of one run. What fails can be tried again: nothing is written twice, nothing is forgotten."""

    def __init__(  # noqa: PLR0915
        self,
        url: sa.URL,
        run: str,
        name: str,
        *,
        rank: int = 0,
        limit: int = schema.LIMIT,
        about: Mapping[str, Any],
        folder: Folder | None = None,
        attempt: int = 0,
    ) -> None:
        self._url = url if folder is None else folder.url(rank)
        self._folder = folder
        """Where each rank has a file of its own."""
        self._run, self._name, self._rank, self._about = run, plain(name), rank, about
        self._owner = uuid.uuid4().hex
        """Of the rank's row: who finds another one in it came after it."""
        self.attempt = attempt
        self._first = 0
        """The step of the run that is the first one of this attempt."""
        self._is_known = False
        """Whether the rank's row was ours."""
        self.is_superseded = False
        """Whether another process goes on with this rank: nothing is written any more."""
        self._me = {"my_run": run, "my_rank": rank}
        self._limit = limit
        self._most_cells = max(10_000, min(CELLS, int(SHARES["tables"] * limit) // 32))
        self._started = time.time()
        self._engine: Engine | None = None
        self._file: tuple[int, int] | None = None
        self._kept = Retention(run, rank, limit)
        self._batch = self._stored = self._request = 0
        """The number of the last batch, and of the last that is in the store."""
        self._told_before = (0, 0)
        """Findings of earlier attempts, and their bytes."""
        self._pulse = 0.0
        self._open: list[tuple[Reading, float]] = []
        """The readings that lie in segments that are not full."""
        self._cells = 0
        """Numbers in their tables."""
        self._number = 0
        """That of the next segment."""
        self._last: int | None = None
        """The last step in the store."""
        self._sealed: int | None = None
        """The last step in a full segment."""
        self._names: dict[str, None] = {}
        self._tables: dict[str, dict[str, None]] = {}
        self._listed = 0
        """How many names and columns the store has a list of."""
        self._findings: dict[tuple[Any, ...], Finding] = {}
        self._texts: dict[tuple[Any, ...], int] = {}
        """Their sizes."""
        self._events: deque[int] = deque()
        """The sizes of the events in the store."""
        self._report = 0
        """Bytes of the report."""
        self._drafts = 0
        """Bytes of the segments that are not full."""
        self._anew = False
        """Whether what is in memory has to be written once more: the store lost it."""
        self.replaced = 0
        """How often the store was found to be another one, without the run."""
        self.refused = 0
        """Readings, findings and events that cannot be put into words."""

    # -- the connection ----------------------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """Lets go of the connection; the next batch makes a new one."""
        engine, self._engine = self._engine, None
        if engine is not None:
            with contextlib.suppress(Exception):
                forks.let_go(engine)

    @property
    def is_gone(self) -> bool:
        """Whether the file that was written to is there no more: deleted, or moved away."""
        return self._file is not None and _identity(self._url) != self._file

    def _connected(self) -> Engine:
        if self._engine is not None and self.is_gone:
            self.disconnect()  # the file was deleted: what is written to it now nobody would find
        if self._engine is None:
            if self._folder is not None:
                self._folder.prepare()
            engine = schema.connect(self._url, writes=True, shared=self._folder is not None)
            try:
                with engine.begin() as connection:
                    self._introduce(connection)
            except BaseException:
                forks.let_go(engine)
                raise
            self._engine, self._file = engine, _identity(self._url)
        return self._engine

    def _introduce(self, connection: Connection) -> None:
        """The rows of the run and the rank, as they have to be for this process to write."""
        row = connection.execute(_ROW, self._me).mappings().first()
        if row is None:
            self._begin(connection)
        elif row["owner"] != self._owner:
            if self._is_known:
                raise _SupersededError
            self._take_over(connection, row)
        elif row["batch"] not in (self._stored, self._batch + 1):  # the latter was written, and we did not hear of it
            self._resume(connection, row)
        self._is_known = True

    def _begin(self, connection: Connection) -> None:
        """Nobody wrote here; or it was lost, and is written once more as far as it is in memory."""
        insert = _insert(connection)
        run = {"id": self._run, "name": self._name, "started": self._started, "about": to_json(self._about)}
        connection.execute(insert(schema.runs).values(run).on_conflict_do_nothing())
        self._agree(connection)
        rank = {"run": self._run, "rank": self._rank, "started": self._started, "heartbeat": time.time()}
        rank |= {"attempt": self.attempt, "owner": self._owner}
        connection.execute(insert(schema.ranks).values(rank).on_conflict_do_nothing())
        self._stored = 0
        if self._batch:
            self.replaced += 1
            self._anew = True
            self._kept = Retention(self._run, self._rank, self._limit)
            self._events.clear()

    def _take_over(self, connection: Connection, row: Any) -> None:
        """Another process wrote here before: this is a later attempt of the run."""
        self.attempt = max(self.attempt, row["attempt"] + 1)
        self._agree(connection)
        self._batch = row["batch"] + 1
        self._resume(connection, row)
        self._stored = self._batch
        values = {"owner": self._owner, "attempt": self.attempt, "batch": self._batch, "ended": None, "report": None}
        values |= {"started": self._started, "heartbeat": time.time(), "state": to_json(self._state({"steps": 0}))}
        connection.execute(_mine(schema.ranks.update(), schema.ranks).values(**values), self._me)

    def _agree(self, connection: Connection) -> None:
        """The step with which this attempt begins, on all ranks."""
        if not self.attempt:
            return
        agreement = agreed(connection, self._run, self.attempt, rank=self._rank, folder=self._folder)
        first, started, told = agreement
        if not self._is_known:  # what is in memory lies where it was agreed to
            self._first = first
        if told is not None:
            event = {"time": time.time(), "event_type": "attempt", "message": told, "level": "warning"}
            row = self._event({**event, "attempt": self.attempt, "first": self._first})
            if row is not None:
                connection.execute(_EVENTS, [row])
        if not self._is_known:
            self._request = self._asked_before(connection, started)

    def _resume(self, connection: Connection, row: Any) -> None:
        """Goes on behind what is in the store."""
        there = stored(connection, self._run, self._rank, row)
        self._stored = there.batch
        self._batch = max(self._batch, there.batch)
        self._number = there.number
        self._names, self._tables = {**there.names, **self._names}, {**there.tables, **self._tables}
        connection.execute(_NO_DRAFTS, self._me)
        entries = [entry for draft in there.drafts for entry in draft]
        chunks, rest, _ = _chunks(entries, self._most_cells)
        for chunk in [*chunks, *([rest] if rest else [])]:
            steps = [reading.step for reading, _ in chunk]
            part = _Part(self._number, min(steps), max(steps), len(chunk), True, _encoded(chunk, True))
            connection.execute(_SEGMENTS, [self._segment(part)])
            self._number += 1
        self._kept = kept(connection, self._run, self._rank, self._limit, self._names)
        self._kept.pin({key: self._placed(finding) for key, finding in self._findings.items()})
        self._sealed = self._last = there.last
        last = -1 if there.last is None else there.last
        self._open = [entry for entry in self._open if entry[0].step > last]
        self._cells = sum(weight(reading) for reading, _ in self._open)
        self._drafts, self._listed, self._anew = 0, 0, True
        if not self._is_known:
            self._told_before = (there.findings, there.texts)
            self._kept.pin(there.grave)
        self._events = deque(there.events)

    # -- batches -----------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        """Writes the batch in one transaction."""
        if self.is_superseded or (not batch and time.monotonic() < self._pulse + PULSE):
            return
        try:
            engine = self._connected()
            try:
                self._commit(engine, batch)
            except _GoneError:
                with engine.begin() as connection:
                    self._introduce(connection)
                self._commit(engine, batch)
        except _SupersededError:
            self.is_superseded = True
            self.disconnect()

    def _commit(self, engine: Engine, batch: Batch) -> None:
        anew = self._anew
        try:
            parts, left, cells = self._parts(self._moved(batch.readings), anew)
        except Exception:
            self._sift(batch.readings)
            parts, left, cells = self._parts(self._moved(batch.readings), anew)
        findings, texts = self._worded({**self._findings, **batch.findings} if anew else batch.findings)
        events = [row for event in batch.events if (row := self._event(event)) is not None]
        with engine.begin() as connection:
            if self._is_new(connection, batch, anew, sum(part.encoded.size + OVERHEAD for part in parts)):
                if anew or any(part.sealed for part in parts):
                    connection.execute(_NO_DRAFTS, self._me)
                if parts:
                    connection.execute(_SEGMENTS, [self._segment(part) for part in parts])
                for row in texts:
                    self._upsert(connection, row)
                if events:
                    connection.execute(_EVENTS, events)
        self._batch += 1
        self._stored = self._batch
        self._pulse = time.monotonic()
        self._listed, self._anew = self._known, False
        self._open, self._cells = left, cells
        self._findings.update(findings)
        self._texts.update({key: len(row["data"]) + OVERHEAD for key, row in zip(findings, texts, strict=True)})
        self._events.extend(len(row["message"]) + len(row["data"]) + OVERHEAD for row in events)
        self._kept.pin({key: self._placed(finding) for key, finding in findings.items()})
        if anew or any(part.sealed for part in parts):
            self._drafts = 0
        for part in parts:
            self._number, self._last = part.number + 1, _later(self._last, part.last)
            if not part.sealed:
                self._drafts += part.encoded.size + OVERHEAD
            else:
                self._sealed = _later(self._sealed, part.last)
                self._kept.add(part.number, part.first, part.last, part.encoded, self._names)

    def thin(self) -> None:
        """Thins what has grown old; it may be left for later."""
        if self.is_superseded:
            return
        if self._kept.is_due:
            self._kept = self._kept.thinned(self._connected().begin)
        if len(self._events) > EVENTS or sum(self._events) > TOLD * self._limit:
            self._forget_events()

    @property
    def size(self) -> int:
        """Bytes of the rank in the store, about."""
        texts = self._told_before[1] + sum(self._texts.values())
        return self._kept.size + self._drafts + texts + sum(self._events) + self._report

    @property
    def names_are_many(self) -> bool:
        """Whether there are more scalars than are thinned with age: the others go with their readings."""
        return len(self._names) > self._kept.most_names

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _moved(self, entries: list[tuple[Reading, float]]) -> list[tuple[Reading, float]]:
        """The readings at their steps of the run: an attempt counts its own from 0."""
        if not self._first:
            return entries
        return [(replace(reading, step=reading.step + self._first), when) for reading, when in entries]

    def _placed(self, finding: Finding) -> Finding:
        if not self.attempt:
            return finding
        step, last = finding.step + self._first, finding.last_step + self._first
        return replace(finding, step=step, last_step=last, evidence={**finding.evidence, "attempt": self.attempt})

    def _state(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """How the rank is, and which process it is."""
        process = {"host": self._about.get("host"), "pid": self._about.get("pid")}
        steps = {"steps": told["steps"] + self._first} if isinstance(told.get("steps"), int) else {}
        return {**told, **steps, "process": process}

    # -- segments ----------------------------------------------------------------------------------------------------

    def _parts(self, fresh: list[tuple[Reading, float]], anew: bool) -> tuple[list[_Part], list[Any], int]:
        """Segments to be written, full ones first, and the readings that are in none that is full."""
        cells = self._cells + sum(weight(reading) for reading, _ in fresh)
        whole = self._open + fresh
        chunks: list[list[tuple[Reading, float]]] = []
        if len(whole) >= SEALED or cells >= self._most_cells:
            chunks, whole, cells = _chunks(whole, self._most_cells)
        draft = whole if chunks or anew else fresh
        number = self._number
        before = self._sealed if chunks or anew else self._last
        parts = []
        for at, chunk in enumerate((*chunks, draft) if draft else chunks):
            sealed = at < len(chunks)
            encoded = _encoded(chunk, sealed)
            steps = [reading.step for reading, _ in chunk]
            last = max(steps)
            first = min(steps) if before is None or last < before else min(before + 1, last)
            before = _later(before, last)  # what comes late covers no more than itself
            parts.append(_Part(number, first, last, len(chunk), sealed, encoded))
            number += 1
            self._learn(encoded)
        return parts, whole, cells

    def _sift(self, entries: list[tuple[Reading, float]]) -> None:
        """Takes out what cannot be encoded."""
        try:
            if entries:
                _encoded(entries, False)
        except Exception:
            good = [entry for entry in entries if _is_encodable(entry)]
            self.refused += len(entries) - len(good)
            entries[:] = good

    def _learn(self, encoded: codec.Encoded) -> None:
        for name in encoded.names:
            if name not in self._names and (len(self._names) < NAMES or is_chief(name)):
                self._names[name] = None
        for kind, columns in encoded.measures.items():
            self._tables.setdefault(kind, {}).update(dict.fromkeys(columns))

    def _segment(self, part: _Part) -> dict[str, Any]:
        return {
            "run": self._run,
            "rank": self._rank,
            "number": part.number,
            "first": part.first,
            "last": part.last,
            "count": part.count,
            "sealed": part.sealed,
            "whole": True,
            "bytes": part.encoded.size,
            "scalars": part.encoded.scalars,
            "tables": part.encoded.tables,
            "facts": part.encoded.facts,
        }

    # -- what is told ------------------------------------------------------------------------------------------------

    def _worded(
        self, findings: Mapping[tuple[Any, ...], Finding]
    ) -> tuple[dict[tuple[Any, ...], Finding], list[dict[str, Any]]]:
        """The findings that can be written, and their rows."""
        written: dict[tuple[Any, ...], Finding] = {}
        rows: list[dict[str, Any]] = []
        for key, finding in findings.items():
            known = self._told_before[0] + len(self._findings) + len(written)
            if key not in self._findings and known >= FINDINGS:
                self.refused += 1
                continue
            try:
                row = {
                    "run": self._run,
                    "rank": finding.rank,
                    "key": _key((*key, self.attempt) if self.attempt else key),
                    "severity": finding.severity.value,
                    "changed": self._batch + 1,
                    "data": to_json(self._placed(finding).to_dict()),
                }
            except Exception:
                self.refused += 1
                continue
            written[key] = finding
            rows.append(row)
        return written, rows

    def _upsert(self, connection: Connection, row: Mapping[str, Any]) -> None:
        changed = {name: row[name] for name in ("severity", "changed", "data")}
        statement = _insert(connection)(schema.findings).values(**row)
        connection.execute(statement.on_conflict_do_update(index_elements=["run", "rank", "key"], set_=changed))

    def _event(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        known = ("time", "timestamp", "event_type", "message", "level", "rank", "data")
        try:
            data = {**{key: value for key, value in event.items() if key not in known}, **(event.get("data") or {})}
            text = to_json(data)
            return {
                "run": self._run,
                "rank": int(event.get("rank", self._rank)),
                "time": float(event["time"]),
                "event_type": plain(str(event.get("event_type", "event")))[:200],
                "level": plain(str(event.get("level", "info")))[:16],
                "message": plain(str(event.get("message", "")))[:LONGEST],
                "data": text if len(text) <= 4 * LONGEST else "{}",
            }
        except Exception:
            self.refused += 1
            return None

    def _is_new(self, connection: Connection, batch: Batch, anew: bool, more: int) -> bool:
        """Writes how the run is with this batch. `False`: it was written, and the connection broke before we heard.

        A run that is not there at all is a `_GoneError`.
        """
        now = time.time()
        values: dict[str, Any] = {"heartbeat": now, "batch": self._batch + 1, "bytes": self.size + more}
        if batch.state:
            values["state"] = to_json(self._state(batch.state))
        if self._known != self._listed or anew:
            values |= {"names": to_json(list(self._names)), "tables": to_json(self._columns)}
        if batch.report is not None:
            report = to_json(batch.report)
            if len(report) > TOLD * self._limit:  # the events are there by themselves
                report = to_json({**batch.report, "events": [], "memory": []})
            self._report = len(report)
            values |= {"report": report, "ended": now, "bytes": self.size + more}
        if connection.execute(_RANK, {**self._me, **values, "before": self._stored, "me": self._owner}).rowcount:
            return True
        row = connection.execute(_ROW, self._me).mappings().first()
        if row is None:
            raise _GoneError
        if row["owner"] != self._owner:
            raise _SupersededError
        return False

    @property
    def _columns(self) -> dict[str, list[str]]:
        return {kind: list(columns) for kind, columns in self._tables.items()}

    @property
    def _known(self) -> int:
        return len(self._names) + sum(1 + len(columns) for columns in self._tables.values())

    def _forget_events(self) -> None:
        """The older half goes."""
        kept = len(self._events) // 2
        column = schema.events.c
        mine = self._mine(sa.select(column.id), schema.events)
        with self._connected().begin() as connection:
            oldest = connection.execute(mine.order_by(column.id.desc()).offset(kept).limit(1)).scalar()
            if oldest is not None:
                connection.execute(self._mine(schema.events.delete(), schema.events).where(column.id <= oldest))
        while len(self._events) > kept:
            self._events.popleft()

    def _mine(self, statement: Any, table: sa.Table) -> Any:
        return statement.where(table.c.run == self._run, table.c.rank == self._rank)

    # -- requests ----------------------------------------------------------------------------------------------------

    def asked(self) -> Iterator[tuple[int, str, Any]]:
        """What was asked of the run since the last look."""
        if self.is_superseded:
            return
        try:
            self._connected()
        except _SupersededError:
            self.is_superseded = True
            return
        if self._folder is not None:
            yield from self._asked_by_file(self._folder)
            return
        with self._connected().connect().execution_options(looks=True) as connection:
            rows = connection.execute(_REQUESTS, {**self._me, "seen": self._request}).mappings().all()
        for row in rows:
            self._request = row["id"]
            if row["taken"] is None or self._rank:
                yield row["id"], row["kind"], from_json(row["value"])

    def _asked_by_file(self, folder: Folder) -> Iterator[tuple[int, str, Any]]:
        """The first rank notes in its own file what came of it."""
        for number, told in folder.requests(after=self._request).items():
            kind, value = str(told.get("kind"))[:32], told.get("value")
            text = value if isinstance(value, str) else "null"
            if self._rank == 0:
                row = {"id": number, "run": self._run, "kind": kind, "value": text, "created": told.get("created", 0.0)}
                with self._connected().begin() as connection:
                    insert = _insert(connection)(schema.requests).values(row).on_conflict_do_nothing()
                    is_new = connection.execute(insert).rowcount
                if not is_new:
                    continue
            self._request = number
            yield number, kind, from_json(text)

    def _asked_before(self, connection: Connection, moment: float) -> int:
        """The last request that was not made of this attempt."""
        if self._folder is not None:
            created = {number: told.get("created", 0.0) for number, told in self._folder.requests().items()}
            return max((number for number, when in created.items() if when < moment), default=0)
        table = schema.requests.c
        last = sa.select(sa.func.max(table.id)).where(table.run == self._run, table.created < moment)
        return connection.execute(last).scalar() or 0

    def took(self, number: int) -> None:
        self._tell(number, taken=time.time())

    def answered(self, number: int, answer: str) -> None:
        self._tell(number, answer=plain(answer)[:LONGEST])

    def _tell(self, number: int, **values: Any) -> None:
        """The first rank speaks for all."""
        if self._rank == 0 and not self.is_superseded:
            with self._connected().begin() as connection:
                mine = schema.requests.update().where(schema.requests.c.id == number)
                connection.execute(mine.values(**values))


class _SupersededError(Exception):
    """Another process goes on with the rank."""


class _GoneError(Exception):
    """The run is not in the store any more: somebody deleted it."""


def _key(key: tuple[Any, ...]) -> str:
    """The key of a finding as an index of PostgreSQL takes it: a long one, of a long name, by its sum."""
    text = to_json(key)
    return text if len(text) <= LONGEST_KEY else hashlib.sha256(text.encode()).hexdigest()


def _encoded(entries: Sequence[tuple[Reading, float]], compress: bool) -> codec.Encoded:
    return codec.encode([reading for reading, _ in entries], [when for _, when in entries], compress=compress)


def _is_encodable(entry: tuple[Reading, float]) -> bool:
    try:
        _encoded([entry], False)
    except Exception:
        return False
    return True


def _chunks(entries: list[tuple[Reading, float]], most_cells: int) -> tuple[list[list[Any]], list[Any], int]:
    """Full segments, what is left, and the numbers in the tables of that."""
    chunks, start, cells = [], 0, 0
    for at, (reading, _) in enumerate(entries, 1):
        cells += weight(reading)
        if at - start >= SEALED or cells >= most_cells:
            chunks.append(entries[start:at])
            start, cells = at, 0
    return chunks, entries[start:], cells


def _later(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


def _identity(url: sa.URL) -> tuple[int, int] | None:
    """Which file it is: another one may have the same name."""
    path = schema.file_of(url)
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return (found.st_dev, found.st_ino)


def _insert(connection: Connection) -> Any:
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
