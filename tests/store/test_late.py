"""What the ranks tell together of a step comes some steps later: it is read, folded and thinned as if it had not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from seismograd.records import Reading
from seismograd.store import Store, open_store, schema
from seismograd.store.recorder import Batch
from seismograd.store.writing import Writing

LATE = 70


def entries(steps: int, late: int = LATE) -> Iterator[tuple[Reading, float]]:
    """Of a first rank: each of its own steps, and between them what was merged of earlier ones."""
    for step in range(steps):
        yield Reading(step, {"loss": float(step % 97)}), 1000.0 + step
        if step >= late:
            yield Reading(step - late, {"ranks/loss": float((step - late) % 97)}), 1000.0 + step


def batches(steps: int, size: int, late: int = LATE) -> Iterator[Batch]:
    every = list(entries(steps, late))
    for at in range(0, len(every), size):
        yield Batch(readings=every[at : at + size], state={"steps": steps})


def written(where: Path, steps: int, *, size: int = 100, limit: int = 8 << 20) -> Writing:
    """A run of two ranks in one file, as they are in a database."""
    url = schema.url_of(where)
    for rank in (1, 0):
        writing = Writing(url, "one", "one", rank=rank, limit=limit, about={})
        for batch in batches(steps if rank == 0 else 1, size):
            writing.write(batch)
            writing.thin()
        writing.disconnect()
    return writing


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    place = tmp_path_factory.mktemp("late")
    written(place, 12_000)
    with open_store(place) as found:
        yield found


@pytest.mark.parametrize("points", [None, 5000, 1000, 200, 20])
def test_points_are_in_the_order_of_their_steps(store: Store, points: int | None) -> None:
    found = store.run("one").series(["loss", "ranks/loss"], points=points)
    for series in found.values():
        assert (np.diff(series.steps) > 0).all()
        assert (series.first <= series.steps).all()
        assert (series.first[1:] > series.steps[:-1]).all() or points is not None
    assert found["loss"].count.sum() == 12_000
    assert 12_000 - 3 * LATE <= found["ranks/loss"].count.sum() <= 12_000 - LATE  # what is not yet in the coarser rows
    for name in ("loss", "ranks/loss"):
        assert (found[name].low.min(), found[name].high.max()) == (0.0, 96.0)


def test_a_part_of_the_steps_has_all_that_was_told_of_them(store: Store) -> None:
    run = store.run("one")
    for start, stop in ((0, 99), (3000, 3071), (5001, 5500), (11_000, 11_511)):
        found = run.series(["loss", "ranks/loss"], start, stop)
        assert [series.steps.tolist() for series in found.values()] == [list(range(start, stop + 1))] * 2
        readings = list(run.readings(start, stop, 0))
        for name in ("loss", "ranks/loss"):
            assert [reading.step for reading in readings if name in reading.scalars] == list(range(start, stop + 1))


def test_it_takes_no_more_place_than_the_same_in_order(tmp_path: Path) -> None:
    sizes = {}
    for late in (0, LATE):
        writing = Writing(schema.url_of(tmp_path / str(late)), "one", "one", limit=1 << 20, about={})
        for batch in batches(30_000, 500, late):
            writing.write(batch)
            writing.thin()
        writing.disconnect()
        sizes[late] = writing.size
    assert sizes[LATE] < 1.2 * sizes[0] < 1 << 20


@pytest.mark.parametrize("size", [1, 7])
def test_readings_come_as_they_came(tmp_path: Path, size: int) -> None:
    written(tmp_path, 300, size=size)
    with open_store(tmp_path) as store:
        steps = [reading.step for reading in store.run("one").readings(rank=0)]
    assert steps == [reading.step for reading, _ in entries(300)]


def test_a_reader_loses_nothing_when_drafts_become_a_segment(tmp_path: Path) -> None:
    every = list(entries(800))
    writing = Writing(schema.url_of(tmp_path), "one", "one", about={})
    for at in range(0, 400, 20):
        writing.write(Batch(readings=every[at : at + 20], state={"steps": 1}))
    with open_store(tmp_path) as store:
        reading = store.run("one").readings(rank=0)
        steps = [next(reading).step for _ in range(350)]
        for at in range(400, len(every), 20):  # what was drafts is a full segment now, with what came since
            writing.write(Batch(readings=every[at : at + 20], state={"steps": 1}))
        steps += [each.step for each in reading]
    writing.disconnect()
    assert steps == [reading.step for reading, _ in every]
