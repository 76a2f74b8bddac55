"""Whatever was read comes back as it was; what is damaged is refused, and the rest is still there."""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from seismograd.records import Finding, Origin, Reading, Severity, TensorStats, Where
from seismograd.store import Recorder, open_store, schema
from seismograd.store.blobs import Blob, DamagedError, pack
from seismograd.store.codec import decode, encode
from seismograd.store.curves import Buckets

ODD = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308, -1e-310, 0.1, float(np.float32(0.1)), 3.4e38)

numbers = st.floats(width=64) | st.sampled_from(ODD)
names = st.text(max_size=12)


def _bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def _same(a: Reading, b: Reading) -> bool:
    def plain(reading: Reading) -> object:
        scalars = [(name, _bits(value)) for name, value in reading.scalars.items()]
        tables = {
            kind: (stats.names, {name: [_bits(float(v)) for v in column] for name, column in stats.columns.items()})
            for kind, stats in reading.tensors.items()
        }
        return reading.step, scalars, tables, reading.rank, reading.marks, reading.series, reading.facts

    return plain(a) == plain(b)


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    rows = draw(st.lists(names, max_size=4, unique=True))
    columns = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    table = {column: draw(st.lists(numbers, min_size=len(rows), max_size=len(rows))) for column in columns}
    return Reading(
        draw(st.integers(0, 1 << 50)),
        draw(st.dictionaries(names, numbers, max_size=5)),
        {"gradient": TensorStats(tuple(rows), table)} if rows else {},
        marks=frozenset(draw(st.lists(names, max_size=2))),
        series=draw(st.none() | st.integers(0, 3)),
        facts=draw(st.dictionaries(names, st.dictionaries(names, st.integers() | names, max_size=2), max_size=1)),
    )


@given(st.lists(readings(), min_size=1, max_size=8), st.booleans())
@settings(deadline=None, max_examples=60)
def test_readings_come_back_to_the_bit(told: list[Reading], compress: bool) -> None:
    encoded = encode(told, [0.0] * len(told), compress=compress)
    back = decode(encoded.scalars, encoded.tables, encoded.facts)
    assert len(back) == len(told)
    assert all(map(_same, told, back))


def test_words_come_back_as_they_were(where: str) -> None:
    sink = Recorder(schema.url_of(where), "one", "one", complain=pytest.fail)
    code = r"""s.replace("\u0000", "\\u0000")"""
    long = "".join(f"block{at}." for at in range(1000))  # longer than an index of PostgreSQL takes
    finding = Finding(
        "loss-spike", Severity.WARNING, 1, "a \0 in it", where=Where(code=code), evidence={"series": long}
    )
    sink.write_reading(Reading(1, {"loss": 1.0}))
    sink.write_finding(finding)
    assert sink.flush()
    sink.update_finding(replace(finding, count=2))
    sink.close({"run": {}})
    with open_store(where) as store:
        (back,) = store.run("one").findings()
    assert (back.where.code, back.message, back.count) == (code, "a \N{REPLACEMENT CHARACTER} in it", 2)
    assert back.key == finding.key


def test_both_back_ends_keep_what_is_odd(where: str) -> None:
    sink = Recorder(schema.url_of(where), "one", "one", complain=pytest.fail)
    stats = {"gradient": TensorStats(tuple(map(str, range(len(ODD)))), {"norm": ODD})}
    told = [Reading(at, {"loss": value, "own \N{SNOWMAN} \x01 '": value}, stats) for at, value in enumerate(ODD)]
    origin = Origin("forward", Where(module="a"), value=math.nan, shape=(2, 3), index=((0, 1),))
    told.append(replace(told[0], step=len(ODD), origin=origin, insight={"gain": math.inf}))
    for reading in told:
        sink.write_reading(reading)
    sink.close({"run": {"loss": math.nan}})
    with open_store(where) as store:
        run = store.run("one")
        back = list(run.readings())
        assert all(map(_same, told, back))
        assert back[-1].insight == {"gain": math.inf}
        assert back[-1].origin is not None
        assert (back[-1].origin.where.module, back[-1].origin.shape) == ("a", (2, 3))
        assert math.isnan(back[-1].origin.value)
        series = run.series("loss")["loss"]
        assert list(map(_bits, series.last.tolist())) == [*map(_bits, ODD), _bits(ODD[0])]
        assert series.bad.tolist() == [int(not math.isfinite(value)) for value in (*ODD, ODD[0])]


@given(st.data())
@settings(deadline=None, max_examples=80)
def test_a_damaged_blob_is_refused(data: st.DataObject) -> None:
    blob = bytearray(encode([Reading(at, {"loss": float(at)}) for at in range(20)], [0.0] * 20).scalars)
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.sampled_from([len(blob), at]))
    with pytest.raises(DamagedError):
        decode(bytes(blob[:cut]), None, None)


def _sealed(head: object, index: object, body: bytes) -> bytes:
    """A blob with a right checksum, made by somebody who means harm."""
    told = zlib.compress(json.dumps([head, index]).encode())
    rest = len(told).to_bytes(4, "little") + told + body
    return b"SG1\n" + zlib.crc32(rest).to_bytes(4, "little") + rest


BOMB = zlib.compress(b"\0" * (1 << 24))
HARMFUL = {
    "a bomb": _sealed({"names": ["a"], "count": 1}, {"v0": ["f8", [1], 0, len(BOMB), 8]}, BOMB),
    "a claim": _sealed({"names": ["a"], "count": 1}, {"v0": ["f8", [1 << 40], 0, 0, 0]}, b""),
    "a negative claim": _sealed({"names": ["a"], "count": 1}, {"v0": ["f8", [-1, -8], 0, 0, 0]}, b""),
    "an object": _sealed({"names": ["a"], "count": 1}, {"v0": ["O", [1], 0, 8, 0]}, b"12345678"),
    "a list": _sealed([1, 2], {}, b""),
    "nothing": b"",
    "pickle": b"\x80\x04]\x94.",
}


@pytest.mark.parametrize("kind", HARMFUL)
def test_what_means_harm_is_refused(kind: str) -> None:
    for reads in (
        Buckets.of_readings,
        Buckets.unpack,
        lambda data: decode(data, None, None),
        lambda data: Blob(data).array("v0"),
    ):
        with pytest.raises(DamagedError):
            reads(HARMFUL[kind])


def test_numbers_that_fit_take_half(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=1000)
    assert len(pack({}, {"a": noise.astype(np.float32).astype(np.float64)})) < 0.55 * len(pack({}, {"a": noise}))


def test_the_rest_of_a_damaged_run_can_be_read(where: str) -> None:
    sink = Recorder(schema.url_of(where), "one", "one", complain=pytest.fail)
    for step in range(1600):
        sink.write_reading(Reading(step, {"loss": float(step)}))
    assert sink.flush(30)
    sink.close({"run": {}})
    engine = schema.connect(schema.url_of(where), writes=True)
    with engine.begin() as connection:
        second = sa.select(schema.segments.c.number).order_by(schema.segments.c.number).offset(1).limit(1)
        number = connection.execute(second).scalar()
        mine = schema.segments.update().where(schema.segments.c.number == number)
        connection.execute(mine.values(scalars=b"SG1\nnot what was written"))
    engine.dispose()
    with open_store(where) as store:
        run = store.run("one")
        with pytest.warns(RuntimeWarning, match=r"steps 512 to 1023 of the run one are left out: .*damaged|checksum"):
            steps = [reading.step for reading in run.readings()]
        assert steps == [*range(512), *range(1024, 1600)]
        assert set(run.series("loss")["loss"].steps) == {*range(512), *range(1024, 1600)}
