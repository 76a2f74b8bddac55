"""However long a run is, it keeps to its limit, and no spike in it is ever lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from seismograd.records import Finding, Reading, Severity, TensorStats
from seismograd.store import Run, open_store, schema
from seismograd.store.recorder import Batch
from seismograd.store.writing import Writing

LIMIT = 1 << 20
LAYERS = tuple(f"layer.{at}" for at in range(20))


def _write(where: str, readings: Iterator[Reading], limit: int = LIMIT, found: int | None = None) -> int:
    """Writes without a thread, in batches; the most bytes that the run took at any time."""
    writing = Writing(schema.url_of(where), "one", "one", limit=limit, about={})
    waiting: list[tuple[Reading, float]] = []
    most = 0
    for reading in readings:
        waiting.append((reading, float(reading.step)))
        if len(waiting) == 400:
            batch = Batch(waiting)
            if found is not None and waiting[0][0].step <= found <= waiting[-1][0].step:
                finding = Finding("loss-spike", Severity.WARNING, found, "a spike")
                batch.findings[finding.key] = finding
            writing.write(batch)
            writing.thin()
            most = max(most, writing.size)
            waiting = []
    writing.write(Batch(waiting, report={}))
    writing.thin()
    writing.disconnect()
    return max(most, writing.size)


def _readings(steps: int, *, tables: bool) -> Iterator[Reading]:
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(512, len(LAYERS)))
    for step in range(steps):
        a, b = pool[step % 512, :2].tolist()
        scalars = {"loss": a, "grad/norm": b, "lr/0": 0.1}
        if step == 1500:
            scalars["loss"] = 1e9
        if step == 3000:
            scalars["loss"] = math.nan
        yield Reading(
            step, scalars, {"gradient": TensorStats(LAYERS, {"norm": pool[step * 7 % 512]})} if tables else {}
        )


def _size(where: str) -> int:
    return sum(path.stat().st_size for path in Path(where).iterdir())


def _check(run: Run, steps: int) -> None:
    for points in (None, 50, 1000):
        series = run.series("loss", points=points)["loss"]
        assert steps <= series.count.sum() < 1.01 * steps, (
            "where coarse and fine meet, a point may reach over the other"
        )
        assert np.nanmax(series.high) == 1e9
        assert series.bad.any()
        for at in np.flatnonzero(series.bad):
            assert series.first[at] <= 3000 <= series.steps[at]
        assert (np.diff(series.steps) >= 0).all()


@pytest.mark.slow
def test_a_long_run_keeps_to_its_limit(tmp_path: Path) -> None:
    where, steps = str(tmp_path), 60_000
    most = _write(where, _readings(steps, tables=True), found=20_000)
    assert most < 1.05 * LIMIT
    assert _size(where) < 1.5 * LIMIT, "with what is free in the file, and its log"
    with open_store(where) as store:
        run = store.run("one")
        _check(run, steps)
        assert run.whole[-1][1] == steps - 1, "the newest are whole"
        heat = run.heat("gradient", "norm")
        assert heat.names == LAYERS
        assert heat.steps[-1] > steps - 5000
        assert np.diff(heat.steps).max() < steps / 10, "all ages are there"


@pytest.mark.slow
def test_scalars_alone(where: str) -> None:
    steps = 60_000
    assert _write(where, _readings(steps, tables=False), found=20_000) < 1.05 * LIMIT
    with open_store(where) as store:
        run = store.run("one")
        _check(run, steps)
        assert len(list(run.readings(0, 500))) == 501, "the first stay whole"
        assert any(first <= 19_900 and last >= 20_100 for first, last in run.whole), (
            "and so does what is around a finding"
        )
        zoomed = run.series("loss", 19_950, 20_050)["loss"]
        assert zoomed.width == 1
        assert len(zoomed) == 101


@pytest.mark.slow
def test_ever_new_names(tmp_path: Path) -> None:
    def logged() -> Iterator[Reading]:
        for step in range(12_000):
            validated = {"val_loss": math.nan if step == 4000 else 1.0} if step % 1000 == 0 and step > 3000 else {}
            loss = 1e9 if step == 1500 else 1.0
            yield Reading(step, {f"sample/{step}": float(step), "loss": loss, **validated})

    assert _write(str(tmp_path), logged()) < 1.05 * LIMIT
    with open_store(tmp_path) as store:
        run = store.run("one")
        loss = run.series("loss", points=100)["loss"]
        assert (loss.count.sum(), loss.high.max()) == (12_000, 1e9)
        assert len(run.names()) <= 2001
        assert "val_loss" in run.names()
        validated = run.series("val_loss")["val_loss"]
        assert (validated.count.sum(), validated.bad.sum()) == (8, 1), "it came late, and is thinned like the loss"


def test_many_layers_and_a_small_limit(tmp_path: Path) -> None:
    names = tuple(f"blocks.{at}.weight" for at in range(3000))
    noise = np.random.default_rng(0).normal(size=(64, 3000))

    def readings() -> Iterator[Reading]:
        for step in range(1200):
            yield Reading(step, {"loss": 1.0}, {"gradient": TensorStats(names, {"norm": noise[step % 64]})})

    assert _write(str(tmp_path), readings(), limit=4 << 20) < 1.1 * (4 << 20)
    with open_store(tmp_path) as store:
        assert len(store.run("one").heat("gradient", "norm").steps) > 10


def test_steps_that_begin_again_are_all_there(where: str) -> None:
    def epochs() -> Iterator[Reading]:
        for epoch in range(12):
            for step in range(200):
                yield Reading(step, {"loss": float(epoch)})

    _write(where, epochs())
    with open_store(where) as store:
        series = store.run("one").series("loss")["loss"]
        assert series.count.sum() == 2400
        assert series.high.max() == 11


def test_a_validation_that_comes_late_is_seen(where: str) -> None:
    def told() -> Iterator[Reading]:
        for step in range(1200):
            yield Reading(step, {"loss": 1.0})
            if step in (511, 1023):
                yield Reading(step, {"val_loss": 2.0})

    _write(where, told())
    with open_store(where) as store:
        assert store.run("one").series("val_loss")["val_loss"].steps.tolist() == [511, 1023]
