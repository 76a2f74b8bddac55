"""Two hundred at once: processes that write, and others that read."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from seismograd.store import open_store

WRITERS = Path(__file__).with_name("writers.py")


class Reader(threading.Thread):
    """Opens the store for itself and looks at it, as a dashboard does, until it is told to stop."""

    def __init__(self, where: str, number: int, over: threading.Event) -> None:
        super().__init__(name=f"reader-{number}")
        self._where, self._number, self._over = where, number, over
        self.looks = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with open_store(self._where) as store:
                while not (self.looks and self._over.is_set()):
                    runs = store.runs()
                    run = runs[self._number % len(runs)]
                    series = run.series(["loss"], points=50)
                    assert not series or (series["loss"].count > 0).all()
                    run.findings()
                    run.events()
                    self.looks += 1
                    self._over.wait(0.5)
        except BaseException as error:
            self.error = error


@pytest.mark.slow
def test_two_hundred_write_and_read_at_once(where: str, tmp_path: Path) -> None:
    writers, readers, steps = 100, 100, 300
    over = threading.Event()
    command = [sys.executable, str(WRITERS), where, str(tmp_path), "--processes", str(writers), "--steps", str(steps)]
    with subprocess.Popen([*command, "--rate", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            for _ in range(writers):
                parent.stdout.readline()
            while not _any(where):
                assert parent.poll() is None
            looking = [Reader(where, number, over) for number in range(readers)]
            for reader in looking:
                reader.start()
            _, said = parent.communicate(timeout=240)
        finally:
            over.set()
            parent.kill()
    for reader in looking:
        reader.join(60)
    assert said.decode() == "", "nobody was told of a lock"
    assert parent.returncode == 0
    assert [reader.error for reader in looking if reader.error] == []
    assert all(reader.looks for reader in looking)
    with open_store(where) as store:
        runs = store.runs()
        assert sorted(run.id for run in runs) == sorted(f"run-{number}" for number in range(writers))
        for run in runs:
            assert [reading.step for reading in run.readings()] == list(range(steps))
            assert run.ended is not None


def _any(where: str) -> bool:
    """Whether a run is there yet; a store that is not made yet has none."""
    try:
        with open_store(where) as store:
            return bool(store.runs())
    except ValueError:
        return False
