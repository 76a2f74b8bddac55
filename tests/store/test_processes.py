"""Processes that fork, are ended by a signal, or simply end: the record is whole, and nobody touches another's."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from seismograd.store import Run, open_store

BEFORE = """
import os, signal, sys, time, threading, multiprocessing
import torch
from torch import nn
import seismograd as sg

def train(watched, steps, model, optimizer):
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).square().mean().backward()
        optimizer.step()

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
"""


def _run(program: str, tmp_path: Path, where: str, *more: str) -> tuple[int, str, str]:
    script = tmp_path / "program.py"
    script.write_text(BEFORE + program)
    command = [sys.executable, *more, str(script), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def _only(where: str) -> Run:
    (run,) = open_store(where).runs()
    return run


def _losses(run: Run) -> list[int]:
    return [reading.step for reading in run.readings() if "loss" in reading.scalars]


WATCH = "watch = sg.watch(model, optimizer, store=sys.argv[1], sinks=[])\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_watch_that_is_written_whole(where: str, tmp_path: Path, name: str) -> None:
    program = WATCH + f"train(watch, 30, model, optimizer)\nos.kill(os.getpid(), signal.{name})\ntime.sleep(60)\n"
    code, _, said = _run(program, tmp_path, where)
    assert (code, said) == (-signal.Signals[name], "")
    run = _only(where)
    assert _losses(run) == list(range(30))
    assert run.ended is not None
    assert run.report()["run"]["exit"] == {"code": 128 + signal.Signals[name], "exception": name}


def test_a_signal_while_it_is_being_closed(where: str, tmp_path: Path) -> None:
    program = """
class Slow:
    def write_reading(self, reading): pass
    write_finding = update_finding = write_reading
    def close(self, report): os.kill(os.getpid(), signal.SIGTERM)

watch = sg.watch(model, optimizer, store=sys.argv[1], sinks=[Slow()])
train(watch, 5, model, optimizer)
watch.close()
"""
    code, _, said = _run(program, tmp_path, where)
    assert (code, said) == (-signal.SIGTERM, "")
    run = _only(where)
    assert _losses(run) == list(range(5))
    assert run.report()["run"]["steps"] == 5


ONCE = "os.kill(os.getpid(), signal.SIGTERM)"
THRICE = f"threading.Thread(target=lambda: [({ONCE}, time.sleep(0.005)) for _ in range(3)], daemon=True).start()"


@pytest.mark.parametrize("ending", [ONCE, THRICE], ids=["once", "thrice"])
def test_under_seismograd_run_too(tmp_path: Path, ending: str) -> None:
    where = str(tmp_path / "store")
    program = f"train(None, 30, model, optimizer)\n{ending}\ntime.sleep(60)\n"
    code, _, _ = _run(program, tmp_path, where, "-m", "seismograd", "run", "--store", where)
    assert code == -signal.SIGTERM
    run = _only(where)
    assert _losses(run) == list(range(30))
    assert run.ended is not None


@pytest.mark.parametrize(
    ("ending", "code"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError('no')", 1), ("raise KeyboardInterrupt", -2)]
)
def test_a_program_that_ends_without_closing(tmp_path: Path, ending: str, code: int) -> None:
    where = str(tmp_path / "store")
    found, _, _ = _run(WATCH + f"train(watch, 30, model, optimizer)\n{ending}\n", tmp_path, where)
    assert found == code
    run = _only(where)
    assert _losses(run) == list(range(30))
    assert run.ended is not None


def test_by_hand_without_closing(tmp_path: Path) -> None:
    program = """
import numpy as np
debugger = sg.TrainingDebugger(store=sys.argv[1])
for step in range(40):
    debugger.step(step, 1.0 / (step + 1), {"a": np.ones(3)}, 0.1)
"""
    code, _, said = _run(program, tmp_path, str(tmp_path / "store"))
    assert (code, said) == (0, "")
    run = _only(str(tmp_path / "store"))
    assert _losses(run) == list(range(40))
    assert run.ended is not None


FORKS = {
    "workers of a DataLoader": """
loader = torch.utils.data.DataLoader([torch.ones(2)] * 8, num_workers=2, multiprocessing_context="METHOD")
for epoch in range(2):
    for batch in loader:
        pass
    train(watch, 10, model, optimizer)
""",
    "a child that ends as programs do": """
def child():
    watch.flush()
    watch.close()
train(watch, 10, model, optimizer)
watch.flush()
for _ in range(3):
    process = multiprocessing.get_context("METHOD").Process(target=child)
    if "METHOD" == "fork":
        number = os.fork()
        if not number:
            child()
            sys.exit(0)
        assert os.waitpid(number, 0)[1] == 0
train(watch, 10, model, optimizer)
""",
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("kind", FORKS)
def test_other_processes_leave_the_record_alone(where: str, tmp_path: Path, kind: str, method: str) -> None:
    body = "".join(f"    {line}\n" for line in (WATCH + FORKS[kind] + "watch.close()").splitlines())
    program = f"if __name__ == '__main__':\n{body}".replace("METHOD", method)
    code, _, said = _run(program, tmp_path, where)
    assert (code, said) == (0, "")
    run = _only(where)
    assert _losses(run) == list(range(20))
    assert run.events(types=["store_unavailable", "store_replaced"]) == []


def test_children_that_fork_in_the_middle_of_a_write_record_runs_of_their_own(where: str, tmp_path: Path) -> None:
    program = """
from seismograd.records import Reading
from seismograd.store import Recorder, open_store
from seismograd.store.schema import url_of
sys.setswitchinterval(1e-4)

def record(name):
    sink = Recorder(url_of(sys.argv[1]), name, name)
    for step in range(300):
        sink.write_reading(Reading(step, {"loss": float(step)}))
        if step % 20 == 0:
            sink.flush()
    sink.close({"run": {}})

over = threading.Event()
sink = Recorder(url_of(sys.argv[1]), "parent", "parent")
def work():
    step = 0
    while not over.is_set():
        sink.write_reading(Reading(step, {"loss": float(step)}))
        step += 1
        sink.flush()
thread = threading.Thread(target=work)
thread.start()
children = []
for number in range(8):
    child = os.fork()
    if not child:
        record(f"child-{number}")
        os._exit(0)
    children.append(child)
    time.sleep(0.02)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
over.set()
thread.join()
sink.close({"run": {}})
"""
    code, _, said = _run(program, tmp_path, where)
    assert (code, said) == (0, "")
    with open_store(where) as store:
        runs = {run.id: run for run in store.runs()}
        assert sorted(runs) == [*(f"child-{number}" for number in range(8)), "parent"]
        for name, run in runs.items():
            steps = _losses(run)
            assert steps == list(range(len(steps)))
            assert len(steps) == 300 or name == "parent"
            assert run.ended is not None
    if "://" not in where:
        connection = sqlite3.connect(Path(where) / "seismograd.db")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
