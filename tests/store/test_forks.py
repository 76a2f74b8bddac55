"""Ctrl-C while a process forks: Python drops what its hooks raise, and none may be counted for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seismograd.store import forks

FORK = """
import os, signal, time
from seismograd.store import forks, schema
engine = schema.connect(schema.url_of("store.db"), writes=True)
gate = forks._gate
assert gate.close()  # the files are there; then Ctrl-C while the fork waits for a transaction
gate.open()
class Waits(type(gate)):
    def close(self):
        super().close()
        signal.raise_signal(signal.SIGINT)
gate.__class__ = Waits
try:
    if os.fork() == 0:
        os._exit(0)
    gate.__class__ = Waits.__mro__[1]
    time.sleep(30)
    print("it was lost")
except KeyboardInterrupt:
    print("heard")
"""


def test_an_interrupt_within_a_hook_is_heard_after_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "heard", done.stderr


def test_who_is_interrupted_on_the_way_in_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = forks._Gate.enter

    def interrupted(self: forks._Gate, user: object) -> None:
        entered(self, user)
        raise KeyboardInterrupt

    monkeypatch.setattr(forks, "_gate", gate := forks._Gate())
    monkeypatch.setattr(forks._Gate, "enter", interrupted)
    with pytest.raises(KeyboardInterrupt), forks.using():
        pass
    assert gate.close()
