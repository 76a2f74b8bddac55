"""A run as the store has it: readings, findings, events, captures, at any resolution."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from seismograd import folders
from seismograd.complaints import SeismogradWarning
from seismograd.judge import ranked
from seismograd.records import Finding, Reading
from seismograd.reports.ranks import sides
from seismograd.reports.report import build_report, finding_of
from seismograd.store import codec, schema
from seismograd.store.attempts import Attempt, listed
from seismograd.store.curves import FACTOR, Buckets, Series, joined
from seismograd.store.layers import Heat, Samples, joined_samples
from seismograd.store.spans import Span
from seismograd.store.texts import from_json, plain, to_json

if TYPE_CHECKING:
    from seismograd.config import Config
    from seismograd.protocols import Detector
    from seismograd.store.comparing import Comparison
    from seismograd.store.judging import Verdict
    from seismograd.store.store import Store

ALIVE = 5.0
"""Seconds without a sign after which a run that has not ended counts as lost."""

LATE = 512
"""Steps after which nothing more is expected of a step: the ranks of a run do not tell of it all at once."""

REQUESTS = ("level", "budget", "stop", "capture", "trace", "clear")

_WORST = ("healthy", "warning", "critical", "crashed")

Gap = tuple[int, int]


class DamagedRankError(schema.StoreError):
    """The file of one rank cannot be read; those of the others can."""


class Run:
    """One recorded run. What may change while it goes on is read when it is asked for; `refresh` reads the rest."""

    def __init__(self, store: Store, row: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> None:
        self._store = store
        self._take(row, ranks)

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.name!r}: {self.status}, {self.steps} steps>"

    def _repr_html_(self) -> str | None:
        """The run as a notebook shows it."""
        from seismograd.reports.page.cell import run_card, shown_or_none

        return shown_or_none(lambda: run_card(self))

    def _take(self, row: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> None:
        self.id: str = row["id"]
        self.name: str = row["name"]
        self.about: dict[str, Any] = from_json(row["about"])
        self.started = _moment(row["started"])
        self._ranks = {each["rank"]: each for each in ranks}
        self._states = {rank: from_json(each["state"]) for rank, each in self._ranks.items()}
        self.ranks: list[int] = sorted(self._ranks)
        self.attempt: int = max((each["attempt"] for each in ranks), default=0)
        """The number of the newest attempt: what is told of how the run is, is told of it."""
        self._newest = [rank for rank in self.ranks if self._ranks[rank]["attempt"] == self.attempt]
        ends = [self._ranks[rank]["ended"] for rank in self._newest]
        self.ended = _moment(max(ends)) if ends and all(end is not None for end in ends) else None
        self.heartbeat = _moment(max((each["heartbeat"] for each in ranks), default=row["started"]))
        self.batch = sum(each["batch"] for each in ranks)
        self.bytes = sum(each["bytes"] for each in ranks)

    def refresh(self) -> Run:
        """Reads anew how the run is."""
        fresh = self._store.run(self.id)
        self.__dict__.update(fresh.__dict__)
        return self

    # -- how it is ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """What the first rank told last: level, budget, counts, what could not be recorded."""
        return self._states[self._newest[0]] if self._newest else {}

    @property
    def status(self) -> str:
        """`healthy`, `warning`, `critical` or `crashed`: that of the worst rank."""
        told = (self._states[rank].get("status", "healthy") for rank in self._newest)
        return max(told, key=_WORST.index, default="healthy")

    @property
    def level(self) -> str | None:
        return self.state.get("level")

    @property
    def budget(self) -> float | None:
        return self.state.get("budget")

    @property
    def steps(self) -> int:
        return max((state.get("steps", 0) for state in self._states.values()), default=0)

    @property
    def live(self) -> bool:
        """Whether it goes on."""
        return self.ended is None and time.time() - self.heartbeat.timestamp() < ALIVE

    @property
    def lost(self) -> bool:
        """Whether it broke off without an end: the process was killed, or the machine."""
        return self.ended is None and not self.live

    @property
    def attempts(self) -> list[Attempt]:
        """The launches of the run, where an elastic launcher started it again; one, if it did not."""
        table = schema.attempts
        with self._reading() as connection:
            rows = connection.execute(sa.select(table).where(table.c.run == self.id)).mappings().all()
        return listed(self.started.timestamp(), rows)

    def per_rank(self) -> list[dict[str, Any]]:
        """How each rank is: `state` is `live`, `ended` or `lost`, as of the newest attempt in which it took part."""
        return [self._told(rank) for rank in self.ranks]

    def _told(self, rank: int) -> dict[str, Any]:
        row, state = self._ranks[rank], self._states[rank]
        process = state.get("process") or {}
        is_alive = row["attempt"] == self.attempt and time.time() - row["heartbeat"] < ALIVE
        return {
            "rank": rank,
            "attempt": row["attempt"],
            "host": process.get("host"),
            "pid": process.get("pid"),
            "status": state.get("status", "healthy"),
            "state": "ended" if row["ended"] is not None else "live" if is_alive else "lost",
            "steps": state.get("steps", 0),
            "last_step": state.get("steps", 0) - 1,
            "exit": state.get("exit"),
            "started": _moment(row["started"]).isoformat(timespec="milliseconds"),
            "ended": None if row["ended"] is None else _moment(row["ended"]).isoformat(timespec="milliseconds"),
            "heartbeat": _moment(row["heartbeat"]).isoformat(timespec="milliseconds"),
            "overhead": state.get("overhead"),
            "bytes": row["bytes"],
        }

    # -- scalars -----------------------------------------------------------------------------------------------------

    def names(self, rank: int = 0) -> list[str]:
        """The scalars that were ever read, in the order in which they came."""
        return list(from_json(self._ranks[rank]["names"])) if rank in self._ranks else []

    def series(
        self,
        names: str | Iterable[str],
        start: int | None = None,
        stop: int | None = None,
        points: int | None = None,
        rank: int = 0,
    ) -> dict[str, Series]:
        """Scalars from step `start` to step `stop`, both included, in at most about `points` points.

        Without `points` it is the finest that is kept. Low and high of what a point stands for are always there.
        """
        wanted = [names] if isinstance(names, str) else list(names)
        if points is not None and points < 1:
            raise ValueError(f"points is {points!r}: it takes 1 or more")
        span, buckets = None, joined([])
        with self._rank(rank) as connection:
            span = self._span(connection, rank, start, stop)
            if span is not None:
                buckets = self._buckets(connection, wanted, span, points, rank).within(*span)
        found = {}
        for name in wanted:
            if name in buckets.names:
                series = buckets.series(name)
                if len(series):
                    found[name] = series
        return found

    def reach(self, rank: int = 0) -> int:
        """The last step that is in the store; -1 if there is none."""
        span = None
        with self._rank(rank) as connection:
            span = self._span(connection, rank, None, None)
        return -1 if span is None else span[1]

    def _span(self, connection: Connection, rank: int, start: int | None, stop: int | None) -> Gap | None:
        ends = []
        for table in (schema.segments, schema.buckets):
            own = sa.select(sa.func.min(table.c.first), sa.func.max(table.c.last))
            ends.append(connection.execute(own.where(table.c.run == self.id, table.c.rank == rank)).one())
        first = [low for low, _ in ends if low is not None]
        last = [high for _, high in ends if high is not None]
        if not first:
            return None
        low = min(first) if start is None else max(start, min(first))
        high = max(last) if stop is None else min(stop, max(last))
        return (low, high) if low <= high else None

    def _buckets(
        self, connection: Connection, names: Sequence[str], span: Gap, points: int | None, rank: int
    ) -> Buckets:
        level, length = 0, span[1] - span[0] + 1
        while points is not None and length // FACTOR ** (level + 1) >= points:
            level += 1
        gaps = [span]
        parts: list[Buckets] = []
        for each in (*range(level, -1, -1), *range(level + 1, 12)):
            if not gaps:
                break
            found, gaps = self._rows(connection, names, gaps, each, rank)
            parts += found
        parts.sort(key=lambda part: int(part.first[0]))  # mostly that is all there is to do
        whole = joined(parts)
        if level:
            whole = whole.folded(FACTOR**level)
        return whole if points is None else whole.thinned(points)

    def _rows(
        self, connection: Connection, names: Sequence[str], gaps: list[Gap], level: int, rank: int
    ) -> tuple[list[Buckets], list[Gap]]:
        """What a level has of the spans that are still missing, and what is missing then."""
        table = schema.segments if level == 0 else schema.buckets
        data = table.c.scalars if level == 0 else table.c.data
        late = self._late(rank)
        missing = sa.or_(*(sa.and_(table.c.first <= stop + late, table.c.last >= start) for start, stop in gaps))
        own = sa.select(table.c.first, table.c.last, data.label("data"))
        own = own.where(table.c.run == self.id, table.c.rank == rank, missing).order_by(table.c.first)
        if level:
            own = own.where(table.c.level == level)
        parts: list[Buckets] = []
        left = gaps
        for row in connection.execute(own):
            try:
                whole = Buckets.of_readings(row.data, names) if level == 0 else Buckets.unpack(row.data, names)
            except codec.DamagedError:
                continue  # what is coarser may have it
            for start, stop in gaps:  # all of them: a validation may come late, in the row after its step's
                part = whole.within(start, min(stop, row.last))
                if level:  # what reaches over the edge is drawn up to it: finer points are behind it
                    first, last = np.maximum(part.first, start), np.minimum(part.last, stop)
                    part = replace(part, first=first, last=last)
                if len(part):
                    parts.append(part)
            left = _without(left, row.first, row.last)
        return parts, left

    # -- tensors -----------------------------------------------------------------------------------------------------

    def tables(self, rank: int = 0) -> dict[str, list[str]]:
        """The kinds of tensor statistics that were read, and the columns of each."""
        return dict(from_json(self._ranks[rank]["tables"])) if rank in self._ranks else {}

    def heat(
        self,
        kind: str,
        column: str,
        start: int | None = None,
        stop: int | None = None,
        *,
        samples: int = 200,
        rank: int = 0,
    ) -> Heat:
        """One measure of all layers over steps, in at most `samples` columns: the greatest value of what each spans."""
        if samples < 1:
            raise ValueError(f"samples is {samples!r}: it takes 1 or more")
        whole = joined_samples([])
        with self._rank(rank) as connection:
            span = self._span(connection, rank, start, stop)
            if span is None:
                return whole.heat(kind, column)
            gaps, parts = [span], []
            sources = (schema.segments, schema.samples)
            for table in sources if self._is_short(connection, span, rank) else reversed(sources):
                found, gaps = self._layers(connection, (kind, column), gaps, table, rank)
                parts += found
            whole = joined_samples(parts).within(*span).spread(samples)
        return whole.heat(kind, column)

    def _is_short(self, connection: Connection, span: Gap, rank: int) -> bool:
        """Whether the tables of the span can be read at full rate in no time."""
        table = schema.segments.c
        own = sa.select(table.id).where(table.run == self.id, table.rank == rank, table.tables.is_not(None))
        within = own.where(table.first <= span[1], table.last >= span[0]).limit(17)  # no more is counted of a long run
        return len(connection.execute(within).all()) <= 16

    def _layers(
        self, connection: Connection, key: tuple[str, str], gaps: list[Gap], table: sa.Table, rank: int
    ) -> tuple[list[Samples], list[Gap]]:
        missing = sa.or_(*(sa.and_(table.c.first <= stop, table.c.last >= start) for start, stop in gaps or [(1, 0)]))
        blobs = ("scalars", "tables") if table is schema.segments else ("data",)
        own = sa.select(table.c.first, table.c.last, *(table.c[name] for name in blobs))
        own = own.where(table.c.run == self.id, table.c.rank == rank, missing).order_by(table.c.first)
        if table is schema.segments:
            own = own.where(table.c.tables.is_not(None))
        parts = []
        for row in connection.execute(own).mappings():
            try:
                if table is schema.segments:
                    steps = codec.Blob(row["scalars"]).array("step")
                    whole = Samples.of_readings(steps, row["tables"], key)
                else:
                    whole = Samples.unpack(row["data"], key)
            except codec.DamagedError:
                continue
            parts += [whole.within(max(start, row["first"]), min(stop, row["last"])) for start, stop in gaps]
            gaps = _without(gaps, row["first"], row["last"])
        return parts, gaps

    # -- whole readings ----------------------------------------------------------------------------------------------

    def readings(
        self, start: int | None = None, stop: int | None = None, rank: int | None = None, *, bare: bool = False
    ) -> Iterator[Reading]:
        """The readings that are kept whole, in their order; of one rank, or of one after another.

        `bare`: also those of which all is left but their tables.
        """
        for each in self.ranks if rank is None else [rank]:
            yield from self._readings(start, stop, each, bare)

    def sheets(self, start: int | None = None, stop: int | None = None, rank: int = 0) -> Iterator[Reading]:
        """The readings with tables that are kept whole, and of those the tables alone."""
        return self._readings(start, stop, rank, bare=False, sheets=True)

    def _readings(
        self, start: int | None, stop: int | None, rank: int, bare: bool, sheets: bool = False
    ) -> Iterator[Reading]:
        table = schema.segments
        own = sa.select(table.c.id, table.c.number).where(table.c.run == self.id, table.c.rank == rank)
        if not bare:
            own = own.where(table.c.whole)
        if start is not None:
            own = own.where(table.c.last >= start)
        if stop is not None:
            own = own.where(table.c.first <= stop + self._late(rank))
        after, drafted = -1, Counter[int]()
        """The last full segment that was read, and the steps of those behind it that were not full."""
        is_whole = False
        while not is_whole:
            ids: Sequence[Any] = []
            with self._rank(rank) as connection:
                ids = connection.execute(own.where(table.c.number > after).order_by(table.c.number)).all()
            known, is_whole = drafted.copy(), True
            for key, number in ids:  # one at a time: a long run is not held in memory
                row: Any = ...
                that = sa.select(table).where(table.c.id == key, table.c.number == number)  # SQLite gives ids again
                with self._rank(rank) as connection:
                    row = connection.execute(that).mappings().first()
                if row is ...:
                    return
                if row is None:  # a live run has put it together with others meanwhile, or forgotten it
                    is_whole = False
                    break
                after = row["number"] if row["sealed"] else after
                for reading in self._decoded(row, sheets):
                    step = reading.step
                    if (start is not None and step < start) or (stop is not None and step > stop):
                        continue
                    if known[step]:
                        known[step] -= 1
                        drafted[step] -= row["sealed"]
                        continue
                    if not row["sealed"]:
                        drafted[step] += 1
                    yield reading

    def _late(self, rank: int) -> int:
        """So many steps later there may be something of a step: what the ranks tell together the first one has."""
        return LATE if rank == 0 and len(self.ranks) > 1 else 0

    def _decoded(self, row: Any, sheets: bool) -> list[Reading]:
        try:
            if sheets:
                return codec.decode_tables(row["scalars"], row["tables"])
            return codec.decode(row["scalars"], row["tables"], row["facts"])
        except codec.DamagedError as error:
            span = f"steps {row['first']} to {row['last']}"
            warnings.warn(f"{span} of the run {self.id} are left out: {error}", SeismogradWarning, stacklevel=4)
            return []

    @property
    def whole(self) -> list[Gap]:
        """The spans of steps, first and last, whose readings are kept whole on the first rank."""
        table, rank = schema.segments.c, min(self.ranks, default=0)
        own = sa.select(table.first, table.last).where(table.run == self.id, table.whole, table.rank == rank)
        rows: Sequence[Any] = []
        with self._rank(rank) as connection:
            rows = connection.execute(own.order_by(table.first)).all()
        spans: list[Gap] = []
        for first, last in rows:
            if spans and first <= spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
            else:
                spans.append((first, last))
        return spans

    def kept(self, rank: int = 0) -> list[Span]:
        """The spans of steps whose readings are kept, in order; those that are not `whole` have lost their tables."""
        table = schema.segments.c
        own = sa.select(table.first, table.last, table.whole).where(table.run == self.id, table.rank == rank)
        rows: Sequence[Any] = []
        with self._rank(rank) as connection:
            rows = connection.execute(own.order_by(table.first, table.id)).all()
        spans: list[Span] = []
        for first, last, whole in rows:
            if spans and spans[-1].whole == whole and first <= spans[-1].stop + 1:
                spans[-1] = Span(spans[-1].start, max(last, spans[-1].stop), whole=whole)
            else:
                spans.append(Span(first, last, whole=whole))
        return spans

    # -- what was told -----------------------------------------------------------------------------------------------

    def findings(self, after: int | None = None) -> list[Finding]:
        """What was found, in the order in which it should be read; with `after` what changed since that batch."""
        table = schema.findings.c
        own = sa.select(table.data).where(table.run == self.id).order_by(table.id)
        if after is not None:
            own = own.where(table.changed > after)
        with self._reading() as connection:
            return ranked(finding_of(from_json(data)) for data in connection.execute(own).scalars())

    def events(
        self,
        after: int = 0,
        *,
        types: str | Iterable[str] | None = None,
        level: str | None = None,
        text: str | None = None,
        limit: int | None = None,
        rank: int | None = None,
    ) -> list[dict[str, Any]]:
        """The events, the oldest first: of some types, of at least a level, with a text in their message."""
        table = schema.events.c
        own = sa.select(schema.events).where(table.run == self.id, table.id > after).order_by(table.id)
        if types is not None:
            own = own.where(table.event_type.in_(map(plain, [types] if isinstance(types, str) else types)))
        if level is not None:
            if level not in _LEVELS:
                raise ValueError(f"level {level!r} is unknown: use one of {', '.join(map(repr, _LEVELS))}")
            own = own.where(table.level.in_(_LEVELS[_LEVELS.index(level) :]))
        if text:
            own = own.where(table.message.icontains(plain(text), autoescape=True))
        if rank is not None:
            own = own.where(table.rank == rank)
        with self._reading() as connection:
            rows = connection.execute(own.limit(limit)).mappings().all()
        return [
            {
                "id": row["id"],
                "timestamp": _moment(row["time"]).isoformat(timespec="milliseconds"),
                "event_type": row["event_type"],
                "message": row["message"],
                "level": row["level"],
                "rank": row["rank"],
                "data": from_json(row["data"]),
            }
            for row in rows
        ]

    def last_event(self) -> int:
        """The id of the last event; 0 if there is none."""
        table = schema.events.c
        with self._reading() as connection:
            return connection.execute(sa.select(sa.func.max(table.id)).where(table.run == self.id)).scalar() or 0

    def event_counts(self, since: float = 0.0) -> dict[tuple[str, str], int]:
        """How many events of each type and level there are; with `since` from that time on."""
        table = schema.events.c
        own = sa.select(table.event_type, table.level, sa.func.count()).where(table.run == self.id, table.time >= since)
        with self._reading() as connection:
            rows = connection.execute(own.group_by(table.event_type, table.level)).all()
        return {(kind, level): number for kind, level, number in rows}

    def captures(self) -> list[folders.Kept]:
        """The bad steps that were saved, as far as they lie on this machine."""
        home = self._store.home
        return [] if home is None else folders.captures_in(home / self.id)

    def report(self) -> dict[str, Any]:
        """The report: the one that was written at the end, or one of what is there so far."""
        table = schema.ranks.c
        own = sa.select(table.report).where(table.run == self.id, table.report.is_not(None)).order_by(table.rank)
        stored: list[Any] = []
        with self._rank(min(self.ranks, default=0)) as connection:
            stored = [from_json(report) for report in connection.execute(own).scalars()]
        if len(stored) == 1 == len(self.ranks) and not self.attempt:
            return dict(stored[0])
        state, findings = self.state, self.findings()
        return build_report(
            run={
                "id": self.id,
                "name": self.name,
                "status": self.status,
                "steps": self.steps,
                "ranks": len(self.ranks),
                "level": self.level,
                "started": self.started.isoformat(timespec="milliseconds"),
                "ended": None if self.ended is None else self.ended.isoformat(timespec="milliseconds"),
                "overhead": state.get("overhead"),
            },
            findings=findings,
            summary=state.get("summary"),
            events=self.events(limit=1000),
            performance=state.get("performance"),
            ranks=self.sides(findings),
        )

    def sides(self, findings: Sequence[Finding] | None = None) -> list[dict[str, Any]]:
        """The ranks side by side, as the report has them: how far each is, its verdict, loss and time of a step.

        `findings` are the run's own, if they were read before; a run of one rank has none.
        """
        if len(self.ranks) < 2:
            return []
        now, states = time.time(), {}
        for rank, row in self._ranks.items():
            ended = None if row["ended"] is None else _moment(row["ended"]).isoformat(timespec="milliseconds")
            alive = now - row["heartbeat"] < ALIVE
            life = "ended" if ended is not None else "live" if alive else "lost"
            told = self._states[rank]
            attempt = row.get("attempt", told.get("attempt"))
            states[rank] = {**told, "ended": ended, "life": life, "attempt": attempt}
        return sides(states, self.findings() if findings is None else findings)

    # -- judging -----------------------------------------------------------------------------------------------------

    def check(
        self,
        detectors: Iterable[Detector] | None = None,
        *,
        ignore: Iterable[str] | str = (),
        config: Config | None = None,
    ) -> Verdict:
        """Judges the stored readings again, with other detectors or limits if they are given.

        Where readings are kept whole the verdict is that of the live run; elsewhere it says at what resolution.
        """
        from seismograd.store.judging import check

        return check(self, detectors, ignore=ignore, config=config)

    def compare(self, other: Run, *, rtol: float = 1e-5, atol: float = 0.0) -> Comparison:
        """The first step, quantity and layer where this run and another part by more than the tolerance."""
        from seismograd.store.comparing import compare

        if not isinstance(other, Run):
            raise TypeError(f"other is {other!r}: it takes a run, such as sg.runs()[0]")
        return compare(self, other, rtol=rtol, atol=atol)

    def html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report page, one file that needs nothing else; written to `path`, whole or not at all, if it is given."""
        from seismograd.reports.page import render_page, write_page

        text = render_page(self)
        if path is not None:
            write_page(text, path)
        return text

    # -- asking a live run -------------------------------------------------------------------------------------------

    def ask(self, kind: str, value: Any = None) -> int:
        """Asks something of the run while it goes on; the number of the request, under which its answer will stand."""
        if kind not in REQUESTS:
            raise ValueError(f"a run cannot be asked for {kind!r}: use one of {', '.join(map(repr, REQUESTS))}")
        row = {"run": self.id, "kind": kind, "value": to_json(value), "created": time.time()}
        if (folder := self._store.folder(self.id)) is not None:
            return self._store.ask(folder, row)
        with self._store.writing() as connection:
            key = connection.execute(schema.requests.insert().values(row)).inserted_primary_key
        assert key is not None
        return int(key[0])

    def requests(self) -> list[dict[str, Any]]:
        """What was asked of the run, and what came of it."""
        table = schema.requests
        own = sa.select(table).where(table.c.run == self.id).order_by(table.c.id)
        ended = sa.select(schema.ranks.c.ended).where(schema.ranks.c.run == self.id)
        with self._reading() as connection:
            rows = connection.execute(own).mappings().all()
            ends = connection.execute(ended).scalars().all()
        nobody = "the run has ended" if ends and None not in ends else None
        return [
            {
                "id": row["id"],
                "kind": row["kind"],
                "value": from_json(row["value"]),
                "created": _moment(row["created"]).isoformat(timespec="milliseconds"),
                "taken": None if row["taken"] is None else _moment(row["taken"]).isoformat(timespec="milliseconds"),
                "answer": row["answer"] or nobody,
            }
            for row in rows
        ]

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """What all ranks told."""
        self._store.gather()
        with self._store.reading() as connection:
            yield connection

    @contextmanager
    def _rank(self, rank: int) -> Iterator[Connection]:
        """What one rank measured. Where its file cannot be read, which is said, what follows is left out."""
        is_open = False
        try:
            with self._store.readings(self.id, rank) as connection:
                is_open = True
                yield connection
        except DamagedRankError as error:
            if rank in self._ranks:
                warnings.warn(f"{error}: it is left out", SeismogradWarning, stacklevel=4)
            if not is_open:
                with self._store.reading() as connection:  # where it has no rows
                    yield connection


_LEVELS = ("debug", "info", "warning", "error", "critical")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _without(gaps: list[Gap], first: int, last: int) -> list[Gap]:
    """The spans without the steps `first` to `last`."""
    left: list[Gap] = []
    for start, stop in gaps:
        if last < start or first > stop:
            left.append((start, stop))
            continue
        if start < first:
            left.append((start, first - 1))
        if last < stop:
            left.append((last + 1, stop))
    return left
