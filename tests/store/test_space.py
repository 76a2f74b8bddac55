"""The disk gets back what removed runs took, in a file and on a server, also while others write."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from seismograd.records import Reading
from seismograd.store import Recorder, StoreError, open_store
from seismograd.store.schema import url_of
from seismograd.store.space import give_back, taken


def write(where: str, name: str, steps: int = 3000) -> Recorder:
    recorder = Recorder(url_of(where), name, name, state=lambda: {"steps": steps, "status": "healthy"})
    for step, row in enumerate(np.random.default_rng(0).random((steps, 20))):
        recorder.write_reading(Reading(step, {f"v{at}": float(value) for at, value in enumerate(row)}))
        if step % 1000 == 999:
            assert recorder.flush(60)
    return recorder


def test_the_space_of_a_removed_run_is_given_back(where: str) -> None:
    for name in ("stays", "goes"):
        write(where, name).close({"schema": 1, "run": {"id": name}, "findings": []})
    with open_store(where) as store:
        before = taken(store)
        store.delete("goes")
        give_back(store)
        after = taken(store)
        assert after < 0.8 * before
        assert [run.id for run in store.runs()] == ["stays"]
        assert len(list(store.run("stays").readings())) == 3000


def test_a_run_that_is_written_meanwhile_loses_nothing(where: str) -> None:
    write(where, "goes").close({"schema": 1, "run": {"id": "goes"}, "findings": []})
    live = write(where, "live", 1000)
    with open_store(where) as store:
        store.delete("goes")
        give_back(store)
    for step in range(1000, 1500):
        live.write_reading(Reading(step, {"v0": float(step)}))
    assert live.flush(60)
    live.close({"schema": 1, "run": {"id": "live"}, "findings": []})
    with open_store(where) as store:
        assert [reading.step for reading in store.run("live").readings()] == list(range(1500))


def test_a_file_that_cannot_be_shortened_bit_by_bit_is_written_anew(tmp_path: Path) -> None:
    for name in ("stays", "goes"):
        write(str(tmp_path), name).close({"schema": 1, "run": {"id": name}, "findings": []})
    path = tmp_path / "seismograd.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("pragma journal_mode=delete")
        connection.execute("pragma auto_vacuum=none")
        connection.execute("vacuum")
        connection.execute("pragma journal_mode=wal")
        assert connection.execute("pragma auto_vacuum").fetchone() == (0,)
    before = path.stat().st_size
    with open_store(tmp_path) as store:
        store.delete("goes")
        give_back(store)
    assert path.stat().st_size < 0.8 * before


def test_what_is_in_the_way_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(str(tmp_path), "run", 10).close({"schema": 1, "run": {"id": "run"}, "findings": []})
    monkeypatch.setattr("seismograd.store.space._PATIENCE", 0.1)
    with (
        open_store(tmp_path) as store,
        closing(sqlite3.connect(tmp_path / "seismograd.db", isolation_level=None)) as other,
    ):
        store.delete("run")
        other.execute("begin immediate")
        with pytest.raises(StoreError, match=r"the runs are gone, but .* could not be made smaller"):
            give_back(store)
