"""Readings as bytes and back. NaN stays NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seismograd.records import Operand, Origin, Reading, TensorStats, Where
from seismograd.store.blobs import Blob, DamagedError, pack, undamaged

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = [
    "Blob",
    "DamagedError",
    "Encoded",
    "Floats",
    "Ints",
    "columns",
    "decode",
    "encode",
    "pack",
    "tables_of",
    "undamaged",
]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Some readings of one rank, in three blobs that can be read apart."""

    scalars: bytes
    tables: bytes | None
    facts: bytes | None
    names: tuple[str, ...]
    """The scalars in them."""
    measures: Mapping[str, tuple[str, ...]]
    """The kinds of tables in them, and their columns."""

    @property
    def size(self) -> int:
        return len(self.scalars) + len(self.tables or b"") + len(self.facts or b"")


def encode(readings: Sequence[Reading], times: Sequence[float], *, compress: bool = True) -> Encoded:
    """The readings, in their order, each with the time (Unix) at which it came.

    What is soon replaced need not be small.
    """
    names = dict.fromkeys(name for reading in readings for name in reading.scalars)
    measures: dict[str, dict[str, None]] = {}
    for reading in readings:
        for kind, stats in reading.tensors.items():
            measures.setdefault(kind, {}).update(dict.fromkeys(stats.columns))
    told = {kind: tuple(measure) for kind, measure in measures.items()}
    scalars, tables = _scalars(readings, times, compress), _tables(readings, compress)
    return Encoded(scalars, tables, _facts(readings), tuple(names), told)


@undamaged
def decode(scalars: bytes, tables: bytes | None, facts: bytes | None) -> list[Reading]:
    """The readings as they were encoded."""
    blob = Blob(scalars)
    steps, series = blob.array("step").tolist(), blob.array("series").tolist()
    rank = blob.head["rank"]
    values: list[dict[str, float]] = [{} for _ in steps]
    for name, places, column in columns(blob):
        for at, value in zip(places.tolist(), column.tolist(), strict=True):
            values[at][name] = value
    for at, names in blob.head["order"].items():  # as they were told, where that differs
        values[int(at)] = {blob.head["names"][name]: values[int(at)][blob.head["names"][name]] for name in names}
    stats: list[dict[str, TensorStats]] = [{} for _ in steps]
    if tables is not None:
        for kind, names, positions, table in tables_of(Blob(tables)):
            for row, at in enumerate(positions.tolist()):
                stats[at][kind] = TensorStats(names, {column: block[row] for column, block in table.items()})
    more: dict[str, Any] = {} if facts is None else Blob(facts).head
    return [
        Reading(
            step,
            values[at],
            stats[at],
            rank,
            frozenset(blob.head["marks"].get(str(at), ())),
            None if series[at] < 0 else series[at],
            _origin(more.get(str(at), {}).get("origin")),
            more.get(str(at), {}).get("insight"),
            more.get(str(at), {}).get("facts") or {},
        )
        for at, step in enumerate(steps)
    ]


@undamaged
def decode_tables(scalars: bytes, tables: bytes | None) -> list[Reading]:
    """The readings that have tables, with nothing but those: faster than all of it."""
    if tables is None:
        return []
    blob = Blob(scalars)
    steps, series = blob.array("step").tolist(), blob.array("series").tolist()
    stats: dict[int, dict[str, TensorStats]] = {}
    for kind, names, positions, table in tables_of(Blob(tables)):
        for row, at in enumerate(positions.tolist()):
            stats.setdefault(at, {})[kind] = TensorStats(names, {column: block[row] for column, block in table.items()})
    rank = blob.head["rank"]
    return [
        Reading(steps[at], {}, stats[at], rank, series=None if series[at] < 0 else series[at]) for at in sorted(stats)
    ]


@undamaged
def columns(blob: Blob, wanted: Sequence[str] | None = None) -> list[tuple[str, NDArray[np.uint32], Floats]]:
    """The scalars of encoded readings: name, places of the readings that have it, values."""
    found = []
    everywhere = np.arange(blob.head["count"], dtype=np.uint32)
    for number, name in enumerate(blob.head["names"]):
        if wanted is None or name in wanted:
            places = blob.array(f"at{number}") if f"at{number}" in blob else everywhere
            found.append((name, places, blob.array(f"v{number}")))
    return found


@undamaged
def tables_of(
    blob: Blob, kind: str | None = None, column: str | None = None
) -> list[tuple[str, tuple[str, ...], NDArray[np.uint32], dict[str, Floats]]]:
    """Tensor statistics: kind, names, places of the readings, and for each column a row for each reading."""
    found = []
    for number, group in enumerate(blob.head["groups"]):
        if kind is not None and (group["kind"] != kind or column not in group["columns"]):
            continue
        wanted = [column] if column is not None else group["columns"]
        table = {name: blob.array(f"t{number}/{group['columns'].index(name)}") for name in wanted}
        found.append((group["kind"], tuple(group["names"]), blob.array(f"at{number}"), table))
    return found


def _scalars(readings: Sequence[Reading], times: Sequence[float], compress: bool) -> bytes:
    alike: dict[tuple[str, ...], list[int]] = {}
    marks: dict[str, list[str]] = {}
    for at, reading in enumerate(readings):
        alike.setdefault(tuple(reading.scalars), []).append(at)
        if reading.marks:
            marks[str(at)] = sorted(reading.marks)
    numbers: dict[str, int] = {}
    pieces: list[list[tuple[NDArray[np.uint32], Floats]]] = []
    order: dict[str, list[int]] = {}
    for names, places in alike.items():
        values = np.array([list(readings[at].scalars.values()) for at in places], dtype=np.float64)
        where = np.array(places, dtype=np.uint32)
        told = [numbers.setdefault(name, len(numbers)) for name in names]
        pieces += [[] for _ in range(len(numbers) - len(pieces))]
        for column, number in enumerate(told):
            pieces[number].append((where, values[:, column]))
        if told != sorted(told):
            order |= dict.fromkeys(map(str, places), told)
    count = len(readings)
    arrays: dict[str, NDArray[Any]] = {
        "step": np.array([reading.step for reading in readings], dtype=np.int64),
        "time": np.array(times, dtype=np.float64),
        "series": np.array([-1 if r.series is None else r.series for r in readings], dtype=np.int16),
    }
    for number, parts in enumerate(pieces):
        at_all, values = parts[0] if len(parts) == 1 else _merged(parts)
        if len(at_all) != count:
            arrays[f"at{number}"] = at_all
        arrays[f"v{number}"] = values
    rank = readings[0].rank if readings else 0
    head = {"count": count, "rank": rank, "names": list(numbers), "order": order, "marks": marks}
    return pack(head, arrays, compress=compress)


def _merged(parts: Sequence[tuple[NDArray[np.uint32], Floats]]) -> tuple[NDArray[np.uint32], Floats]:
    places, values = (np.concatenate(side) for side in zip(*parts, strict=True))
    order = np.argsort(places)
    return places[order], values[order]


def _tables(readings: Sequence[Reading], compress: bool) -> bytes | None:
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], tuple[list[int], list[TensorStats]]] = {}
    for at, reading in enumerate(readings):
        for kind, stats in reading.tensors.items():
            positions, members = groups.setdefault((kind, stats.names, tuple(stats.columns)), ([], []))
            positions.append(at)
            members.append(stats)
    if not groups:
        return None
    arrays: dict[str, NDArray[Any]] = {}
    head = []
    for number, ((kind, names, measures), (positions, members)) in enumerate(groups.items()):
        head.append({"kind": kind, "names": names, "columns": measures})
        arrays[f"at{number}"] = np.array(positions, dtype=np.uint32)
        for which, measure in enumerate(measures):
            rows = [np.asarray(stats.columns[measure], dtype=np.float64) for stats in members]
            if any(row.shape != (len(names),) for row in rows):
                raise ValueError(f"the column {measure!r} of {kind!r} is not as long as its names")
            arrays[f"t{number}/{which}"] = np.stack(rows)
    return pack({"groups": head}, arrays, compress=compress)


def _facts(readings: Sequence[Reading]) -> bytes | None:
    head: dict[str, Any] = {}
    for at, reading in enumerate(readings):
        more: dict[str, Any] = {}
        if reading.facts:
            more["facts"] = reading.facts
        if reading.insight is not None:
            more["insight"] = reading.insight
        if reading.origin is not None:
            more["origin"] = asdict(reading.origin)
        if more:
            head[str(at)] = more
    return pack(head, {}) if head else None


def _origin(told: dict[str, Any] | None) -> Origin | None:
    if told is None:
        return None
    tuples = {name: tuple(told[name]) for name in ("shape",)}
    return Origin(
        **{
            **told,
            **tuples,
            "where": Where(**told["where"]),
            "columns": None if told["columns"] is None else tuple(told["columns"]),
            "index": tuple(tuple(place) for place in told["index"]),
            "inputs": tuple(Operand(**{**each, "shape": tuple(each["shape"])}) for each in told["inputs"]),
        }
    )
