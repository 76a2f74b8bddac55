"""Ctrl-C while a process forks: Python drops what its hooks raise, and none may be counted for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seismograd.store import forks

HOOKS = {
    "a fork that waits for a transaction": """
from seismograd.store import forks, schema
engine = schema.connect(schema.url_of("store.db"), writes=True)
gate = forks._gate
assert gate.close()  # the files are there; then Ctrl-C while the fork waits
gate.open()
class Waits(type(gate)):
    def close(self):
        super().close()
        signal.raise_signal(signal.SIGINT)
gate.__class__ = Waits
def work():
    if os.fork() == 0:
        os._exit(0)
    gate.__class__ = Waits.__mro__[1]
""",
    "a garbage collection": """
from seismograd.probes.timing import Collector
collector = Collector(lambda: signal.raise_signal(signal.SIGINT))
work = gc.collect
""",
}
REST = """
try:
    work()
    time.sleep(30)
    print("it was lost")
except KeyboardInterrupt:
    print("heard")
"""


@pytest.mark.parametrize("hook", HOOKS)
def test_an_interrupt_within_a_hook_is_heard_after_it(hook: str, tmp_path: Path) -> None:
    code = f"import gc, os, signal, time\n{HOOKS[hook]}\n{REST}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
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
