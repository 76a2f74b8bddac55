"""Readings as bytes and back: JSON for what has names, compressed arrays for numbers. NaN stays NaN.

A blob is a head, which says where each array lies, and the arrays, each compressed by itself, so that one of them can
be read without the others. There is no pickle.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seismograd.records import Operand, Origin, Reading, TensorStats, Where, strict

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MAGIC = b"SG1\n"
_LARGEST = 1 << 30
"""Bytes: what claims to be larger, unpacked, was not written by us."""
_WORTH = 64
"""Bytes: what is smaller is not compressed."""

_DTYPES = {"f8": np.float64, "f4": np.float32, "i8": np.int64, "i4": np.int32, "u4": np.uint32, "i2": np.int16}


class DamagedError(ValueError):
    """Bytes in the store that are not what was written there."""


def pack(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A blob of `head`, which JSON can say, and the arrays by name."""
    index: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        raw = _shuffled(array)
        part = zlib.compress(raw, 1) if len(raw) >= _WORTH else raw
        if len(part) >= len(raw):
            part = raw
        index[name] = [array.dtype.str[1:], list(array.shape), at, len(part), len(part) < len(raw)]
        parts.append(part)
        at += len(part)
    told = zlib.compress(json.dumps([head, index], separators=(",", ":"), default=strict).encode(), 1)
    return b"".join([_MAGIC, len(told).to_bytes(4, "little"), told, *parts])


class Blob:
    """What `pack` made: `head` at once, an array when it is asked for. What is damaged raises `DamagedError`."""

    def __init__(self, data: bytes) -> None:
        data = bytes(data)
        if not data.startswith(_MAGIC):
            raise DamagedError("a record of the store does not begin as records do: it is damaged")
        length = int.from_bytes(data[4:8], "little")
        try:
            self.head, self._index = json.loads(_inflated(data[8 : 8 + length], _LARGEST))
        except (ValueError, TypeError) as error:
            raise DamagedError(f"the head of a record of the store is damaged: {error}") from None
        self._body = memoryview(data)[8 + length :]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    @property
    def names(self) -> list[str]:
        return list(self._index)

    def array(self, name: str) -> NDArray[Any]:
        try:
            kind, shape, at, length, is_compressed = self._index[name]
            dtype = np.dtype(_DTYPES[kind])
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            if not 0 <= size <= _LARGEST:
                raise ValueError(f"{size} bytes are claimed")
            part = bytes(self._body[at : at + length])
            raw = _inflated(part, size) if is_compressed else part
            if len(raw) != size:
                raise ValueError(f"{len(raw)} bytes instead of {size}")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DamagedError(f"the array {name!r} of a record of the store is damaged: {error}") from None
        return _unshuffled(raw, dtype, shape)


def _shuffled(array: NDArray[Any]) -> bytes:
    """The bytes, first ones first: what neighbours have in common then stands together, and compresses."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.size < 2:
        return flat.tobytes()
    return flat.view(np.uint8).reshape(flat.size, flat.itemsize).T.tobytes()


def _unshuffled(raw: bytes, dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
    array = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, -1).T.copy().view(dtype)
    return array.reshape(shape)


def _inflated(data: bytes, limit: int) -> bytes:
    engine = zlib.decompressobj()
    try:
        raw = engine.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(raw) > limit or not engine.eof:
        raise ValueError("it does not end where it should")
    return raw


# -- readings ----------------------------------------------------------------------------------------------------------


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


def encode(readings: Sequence[Reading], times: Sequence[float]) -> Encoded:
    """The readings, in their order, each with the time (Unix) at which it came."""
    names = dict.fromkeys(name for reading in readings for name in reading.scalars)
    measures: dict[str, dict[str, None]] = {}
    for reading in readings:
        for kind, stats in reading.tensors.items():
            measures.setdefault(kind, {}).update(dict.fromkeys(stats.columns))
    told = {kind: tuple(measure) for kind, measure in measures.items()}
    return Encoded(_scalars(readings, times), _tables(readings), _facts(readings), tuple(names), told)


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


def columns(blob: Blob, wanted: Sequence[str] | None = None) -> list[tuple[str, NDArray[np.uint32], Floats]]:
    """The scalars of encoded readings: name, places of the readings that have it, values."""
    found = []
    everywhere = np.arange(blob.head["count"], dtype=np.uint32)
    for number, name in enumerate(blob.head["names"]):
        if wanted is None or name in wanted:
            places = blob.array(f"at{number}") if f"at{number}" in blob else everywhere
            found.append((name, places, blob.array(f"v{number}")))
    return found


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


def _scalars(readings: Sequence[Reading], times: Sequence[float]) -> bytes:
    numbers: dict[str, int] = {}
    places: list[list[int]] = []
    values: list[list[float]] = []
    order: dict[str, list[int]] = {}
    marks: dict[str, list[str]] = {}
    for at, reading in enumerate(readings):
        told = []
        for name, value in reading.scalars.items():
            number = numbers.get(name)
            if number is None:
                number = numbers[name] = len(numbers)
                places.append([])
                values.append([])
            places[number].append(at)
            values[number].append(value)
            told.append(number)
        if told != sorted(told):
            order[str(at)] = told
        if reading.marks:
            marks[str(at)] = sorted(reading.marks)
    count = len(readings)
    arrays: dict[str, NDArray[Any]] = {
        "step": np.array([reading.step for reading in readings], dtype=np.int64),
        "time": np.array(times, dtype=np.float64),
        "series": np.array([-1 if r.series is None else r.series for r in readings], dtype=np.int16),
    }
    for number in range(len(numbers)):
        if len(places[number]) != count:
            arrays[f"at{number}"] = np.array(places[number], dtype=np.uint32)
        arrays[f"v{number}"] = np.array(values[number], dtype=np.float64)
    rank = readings[0].rank if readings else 0
    head = {"count": count, "rank": rank, "names": list(numbers), "order": order, "marks": marks}
    return pack(head, arrays)


def _tables(readings: Sequence[Reading]) -> bytes | None:
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
            arrays[f"t{number}/{which}"] = np.stack(rows)
    return pack({"groups": head}, arrays)


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
