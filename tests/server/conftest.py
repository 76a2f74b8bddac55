"""For the tests of the service: stores with hand-made runs, clients, and a real server in a process of its own."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from seismograd.records import Finding, Reading, Severity, TensorStats, Where
from seismograd.server import create_app
from seismograd.server.gate import Limits
from seismograd.store import Recorder
from seismograd.store.schema import url_of

ADDRESS = "http://127.0.0.1"
FREE = Limits(changes=10**9, guesses=10**9)
"""As many changes as a test likes."""

HOSTILE = (
    "<script>alert(1)</script>",
    "../../../etc/passwd",
    '"; DROP TABLE runs; --',
    "\u202etxt.exe \N{PILE OF POO} \u0130",
    "{{7*7}} ${7*7} %s %n",
    "a\nb\rc\td",
    "x" * 5000,
)


def report(**run: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"findings": [], "summary": {}, "events": [], "memory": [], "performance": {}}
    return {"schema": 1, "version": "0", "run": run, **empty}


class Writer:
    """A run that a test writes step by step, as a watch would."""

    def __init__(self, store: Path | str, run: str, name: str = "tiny", *, rank: int = 0, **more: Any) -> None:
        self.run, self.steps, self.level, self.counted = run, 0, "basic", 0
        self.heard: list[tuple[str, Any]] = []
        self.recorder = Recorder(
            url_of(store), run, name, rank=rank, state=self.state, on_request=self.hear, about=lambda: {"host": "here"}
        )
        self.extra = more

    def state(self) -> dict[str, Any]:
        counts = dict.fromkeys(("anomaly_steps", "gradient_explosions", "gradient_vanishing", "loss_anomalies"), 0)
        return {
            "status": "healthy",
            "level": self.level,
            "budget": 0.01,
            "steps": self.steps,
            "summary": {"total_steps": self.counted, **counts},
            "overhead": {"budget": 0.01, "measured": 0.004},
            **self.extra,
        }

    def hear(self, kind: str, value: Any, answer: Callable[[str], None]) -> None:
        self.heard.append((kind, value))
        if kind == "clear":
            self.counted = 0
        elif kind == "level":
            self.level = value
        self.log(f"{kind} was asked for", "request")
        answer(f"{kind} is done")

    def train(self, steps: int, **scalars: float) -> None:
        for step in range(self.steps, self.steps + steps):
            norms = np.array([1.0 + step, math.nan if step == 7 else 2.0])
            values = {"loss": 1.0 / (1 + step), "grad/norm": float(step), "lr/0": 0.1, **scalars}
            tables = {"gradient": TensorStats(("0.weight", HOSTILE[0]), {"norm": norms, "max": norms * 2})}
            self.recorder.write_reading(Reading(step, values, tables))
            self.steps, self.counted = self.steps + 1, self.counted + 1

    def find(self, finding: str = "nonfinite-loss", **more: Any) -> None:
        given: dict[str, Any] = {"severity": Severity.CRITICAL, "step": 7, "message": "the loss is NaN", **more}
        self.recorder.write_finding(Finding(finding, **given))

    def log(self, message: str, kind: str = "note", level: str = "info", **data: Any) -> None:
        self.recorder.write_event({"event_type": kind, "message": message, "level": level, "data": data})

    def flush(self) -> None:
        assert self.recorder.flush()

    def end(self, **run: Any) -> None:
        self.recorder.close(report(id=self.run, **run))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder of a store, which is not there yet."""
    return tmp_path / "runs"


@pytest.fixture
def write(store: Path) -> Iterator[Callable[..., Writer]]:
    """Begins runs in the store; those that have not ended end with the test."""
    begun: list[Writer] = []

    def begin(run: str, *arguments: Any, **more: Any) -> Writer:
        begun.append(Writer(store, run, *arguments, **more))
        return begun[-1]

    yield begin
    for writer in begun:
        writer.end()


@pytest.fixture
def ended(write: Callable[..., Writer]) -> Writer:
    """A run that is over, with something of everything in it, not all of it finite or harmless."""
    writer = write("20260101-101500-aaaaaa", "first", status="critical")
    writer.train(30)
    writer.train(1, loss=math.nan)
    writer.train(1, loss=math.inf)
    writer.find(evidence={"norm": math.inf, "name": HOSTILE[0]}, where=Where(file="train.py", line=3, code="<b>"))
    writer.find("gradient-explosion", severity=Severity.WARNING, message=HOSTILE[0])
    writer.log("all is well", epoch=1)
    writer.log(HOSTILE[2], "warning", "warning", loss=math.nan)
    writer.flush()
    writer.end(status="critical")
    return writer


@pytest.fixture
def live(write: Callable[..., Writer]) -> Writer:
    """A run that goes on."""
    writer = write("20260102-101500-bbbbbb", "second")
    writer.train(5)
    writer.flush()
    return writer


@pytest.fixture
def client(store: Path) -> Iterator[TestClient]:
    with TestClient(create_app(store, limits=FREE), base_url=ADDRESS) as made:
        yield made


class Served:
    """`seismograd ui` in a process of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "seismograd", "ui", "--no-open", *arguments]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []

    def started(self) -> str:
        """The address, as it is printed."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            found = re.search(r"http://\S+", line)
            if found is not None:
                return found[0]
        raise AssertionError(f"it did not start: {self.ended()}")

    def interrupt(self, how: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(how)

    def ended(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, "".join(self.said) + out, err


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def begin(*arguments: str, **environment: str) -> Served:
        started.append(Served(*arguments, **environment))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
