"""Ctrl-C is heard where Python drops what is raised: in `__del__`, in callbacks of collections and weak references."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from seismograd.interrupts import heed

BEFORE = """
import gc, os, signal, subprocess, sys, time, weakref
import torch
import seismograd as sg

class Thing:
    pass

def interrupts(*_):
    signal.raise_signal(signal.SIGINT)

model = torch.nn.Linear(2, 1)
watch = sg.watch(model, torch.optim.SGD(model.parameters(), lr=0.01), sinks=[], store=False)
"""
PLACES = {
    "__del__": """
Thing.__del__ = interrupts
def work():
    Thing()
""",
    "a weak reference": """
def work():
    thing = Thing()
    reference = weakref.ref(thing, interrupts)
    del thing
""",
    "a collection": """
kept = [[number] for number in range(1_000_000)]
def work():
    sends = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -INT {os.getpid()}"])
    while sends.poll() is None:
        gc.collect()
    sends.wait()
""",
}
AFTER = """
try:
    work()
    time.sleep(10)
    print("it was lost")
except KeyboardInterrupt:
    watch.close()
    print("heard", sys.unraisablehook is sys.__unraisablehook__)
"""


@pytest.mark.parametrize("place", PLACES)
def test_one_that_python_drops_comes_again(place: str, tmp_path: Path) -> None:
    code = BEFORE + PLACES[place] + AFTER
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("heard True", "")


def test_what_else_is_dropped_goes_where_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    class Thing:
        def __del__(self) -> None:
            raise ValueError("dropped")

    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: told.append(str(each.exc_value)))
    theirs = sys.unraisablehook
    undo = heed()
    Thing()
    undo()
    assert sys.unraisablehook is theirs
    assert told == ["dropped"]


def test_a_hook_that_was_set_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    undo = heed()
    ours = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", partial(ours))
    theirs = sys.unraisablehook
    undo()
    assert sys.unraisablehook is theirs
