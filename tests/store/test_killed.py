"""`kill -9` while it writes: the store opens, nothing in it is broken, and at most two seconds are missing."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from seismograd.store import NoRunError, Store, open_store

WRITERS = Path(__file__).with_name("writers.py")
MOST_LOST = 2.0
"""Seconds."""


def _notes(log: Path) -> list[tuple[int, float]]:
    """The steps that a process handed over, and when."""
    data = log.read_bytes() if log.exists() else b""
    return list(struct.iter_unpack("<qd", data[: len(data) // 16 * 16]))


def _kill_all(where: str, folder: Path, chance: random.Random, *, processes: int, layers: int) -> dict[int, float]:
    """Starts writers, kills each at a moment of its own; when that was, by number."""
    folder.mkdir()
    command = [sys.executable, str(WRITERS), where, str(folder), "--prefix", f"{folder.name}-", "--rate", "500"]
    command += ["--processes", str(processes), "--layers", str(layers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(parent.stdout.readline()) for _ in range(processes)]
        now = time.monotonic()
        moments = sorted((now + chance.uniform(0.05, 3.5), number) for number in range(processes))
        killed = {}
        for moment, number in moments:
            time.sleep(max(0.0, moment - time.monotonic()))
            killed[number] = time.monotonic()
            os.kill(children[number], signal.SIGKILL)
        parent.wait(30)
    return killed


def _check(store: Store, run: str, notes: list[tuple[int, float]], killed: float) -> int:
    """Everything that is more than two seconds old is there, once, as it was; how many readings there are."""
    held_up = max((after - before for (_, before), (_, after) in pairwise(notes)), default=0.0)  # by this machine
    due = [step for step, at in notes if at < killed - MOST_LOST - held_up]
    try:
        readings = list(store.run(run).readings())
    except NoRunError:
        readings = []
    steps = [reading.step for reading in readings]
    assert steps == list(range(len(steps))), "each once, in order, without a gap"
    assert len(steps) >= len(due)
    assert len(steps) <= len(notes) + 1
    assert all(reading.scalars["grad/norm"] == reading.step for reading in readings)
    for reading in readings:
        for stats in reading.tensors.values():
            assert stats.columns["norm"][-1] == reading.step + (len(stats) - 1) / 7
    return len(steps)


@pytest.mark.slow
def test_kill_9_a_hundred_times(where: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    written = 0
    rounds = 3 if "://" in where else 10  # of ten processes that write at once
    for at in range(rounds):
        home = where if "://" in where else f"{where}-{at % 2}"  # also a store that was killed before
        folder = tmp_path / f"round-{at}"
        killed = _kill_all(home, folder, chance, processes=10, layers=at % 3 * 8)
        with open_store(home) as store:
            for number, moment in killed.items():
                written += _check(store, f"{folder.name}-{number}", _notes(folder / f"{number}.log"), moment)
        if "://" not in where:
            with sqlite3.connect(Path(home) / "seismograd.db") as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            connection.close()
    assert written > 100 * rounds, "or nothing was tried"
