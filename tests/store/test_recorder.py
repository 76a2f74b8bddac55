"""The recorder: what is handed over is written, without ever holding up whoever hands it over."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seismograd.records import Finding, Reading, Severity, TensorStats
from seismograd.store import Recorder, Run, open_store
from seismograd.store import recorder as recorders
from seismograd.store.schema import url_of

REPORT = {"run": {"status": "healthy"}}


def reading(step: int, **more: Any) -> Reading:
    return Reading(step, {"loss": 1.0 / (1 + step), "grad/norm": float(step)}, **more)


def finding(step: int = 3, **more: Any) -> Finding:
    return Finding("nonfinite-loss", Severity.CRITICAL, step, "the loss is NaN", evidence={"loss": math.nan}, **more)


def open_run(where: str) -> Run:
    return open_store(where).run("one")  # the store is closed when the run goes


def recorder(where: str, **more: Any) -> Recorder:
    return Recorder(url_of(where), "one", "a run", complain=pytest.fail, **more)


def test_what_is_handed_over_is_there(where: str) -> None:
    sink = recorder(where, about=lambda: {"command": "train.py"}, state=lambda: {"status": "critical", "steps": 5})
    for step in range(5):
        sink.write_reading(reading(step))
    sink.write_finding(finding())
    sink.update_finding(replace(finding(), count=2, last_step=4))
    sink.write_event({"event_type": "capture", "message": "saved \0 \ud800", "extra": 1})
    sink.close({"run": {"status": "critical", "steps": 5}})
    run = open_run(where)
    assert list(run.readings()) == [reading(step) for step in range(5)]
    (found,) = run.findings()
    assert (found.count, found.last_step) == (2, 4)
    assert found.evidence["loss"] == "NaN", "as in the report"
    (event,) = run.events()
    assert (event["event_type"], event["data"]) == ("capture", {"extra": 1})
    assert (run.name, run.status, run.steps, run.about["command"]) == ("a run", "critical", 5, "train.py")
    assert run.ended is not None
    assert run.report()["run"]["status"] == "critical"


def test_no_thread_and_no_store_are_left(tmp_path: Path) -> None:
    before = threading.active_count()
    unused = recorder(str(tmp_path / "none"))
    assert unused.flush()
    unused.close(REPORT)
    assert not (tmp_path / "none").exists()
    used = recorder(str(tmp_path / "some"))
    used.write_reading(reading(0))
    used.close(REPORT)
    used.close(REPORT)
    assert threading.active_count() == before


def test_flush_waits_until_it_is_written(where: str) -> None:
    sink = recorder(where)
    try:
        for step in range(700):
            sink.write_reading(reading(step))
        assert sink.flush(30.0)
        assert [each.step for each in open_run(where).readings()] == list(range(700))
    finally:
        sink.close(REPORT)


def test_too_many_at_once_are_thinned_and_it_says_so(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "MOST", 64)
    gate = threading.Event()
    sink = recorder(where, about=lambda: {"waited": gate.wait(30)})
    rare = {
        100: reading(100, facts={"data": {"same": True}}),
        101: Reading(101, {"loss": math.nan}),
        103: Reading(103, {"loss": 0.5, "own": -math.inf}),
        105: Reading(105, {"val_loss": 1.0}),
        107: reading(107, marks=frozenset({"amp-skipped"})),
    }
    for step in range(1000):
        sink.write_reading(rare.get(step, reading(step)))
        assert len(sink._queue) <= 65
    gate.set()
    assert sink.flush(30.0)
    sink.close(REPORT)
    run = open_run(where)
    kept = [each.step for each in run.readings()]
    assert set(rare) <= set(kept)
    assert kept == sorted(kept)
    assert len(kept) + sink.thinned == 1000
    assert sink.thinned > 800
    told = sink.told()
    assert told["thinned"] == sink.thinned
    assert "came faster than they could be written" in told["missing"]
    assert any("came faster" in event["message"] for event in run.events(types="store_thinned"))


def test_large_tables_count_for_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recorders, "MOST_CELLS", 1000)
    gate = threading.Event()
    sink = recorder(str(tmp_path), about=lambda: {"waited": gate.wait(30)})
    stats = {"gradient": TensorStats(("a", "b"), {"norm": [1.0, 2.0], "max": [1.0, 2.0]})}
    for step in range(2000):
        sink.write_reading(reading(step, tensors=stats))
    assert sum(recorders.weight(each) for each, _ in sink._queue) <= 1000
    gate.set()
    sink.close(REPORT)
    assert sink.written + sink.thinned == 2000


def test_a_run_that_is_bad_for_good_does_not_grow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recorders, "MOST_CELLS", 1000)
    gate = threading.Event()
    sink = recorder(str(tmp_path), about=lambda: {"waited": gate.wait(30)})
    stats = {"gradient": TensorStats(("a", "b"), {"norm": [math.nan, 2.0], "max": [1.0, 2.0]})}
    for step in range(2000):
        sink.write_reading(Reading(step, {"loss": math.nan}, stats))
        assert sum(recorders.weight(each) for each, _ in sink._queue) <= 1000
    gate.set()
    sink.close(REPORT)
    assert next(iter(open_run(str(tmp_path)).readings())).step == 0, "where it began is there"
    assert sink.written + sink.thinned == 2000


def test_what_cannot_be_written_down_is_left_out(where: str) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no")

    sink = recorder(where)
    sink.write_reading(reading(0))
    sink.write_reading(Reading(1, {"loss": "high"}))  # type: ignore[dict-item]
    sink.write_reading(Reading(1 << 80, {"loss": 1.0}))
    sink.write_reading(reading(2, tensors={"gradient": TensorStats(("a", "b"), {"norm": [1.0]})}))
    sink.write_reading(reading(3, facts={"data": {"odd": Odd()}}))
    sink.write_finding(replace(finding(), evidence={"odd": Odd()}))
    sink.write_event({"event_type": "odd", "message": Odd()})
    sink.write_reading(reading(4))
    sink.close(REPORT)
    run = open_run(where)
    assert [each.step for each in run.readings()] == [0, 4]
    assert run.ended is not None
    told = sink.told()
    assert told["missing"].startswith("6 readings, findings or events cannot be written down")


def test_a_state_that_fails_costs_no_reading(where: str) -> None:
    answers: list[Callable[[], dict[str, Any]]] = [lambda: {}, lambda: {}.missing, lambda: next(iter(()))]  # type: ignore[attr-defined]
    calls = 0

    def state() -> dict[str, Any]:
        nonlocal calls
        calls += 1
        return answers[min(calls, 2)]()

    sink = recorder(where, state=state)
    for step in range(3):
        sink.write_reading(reading(step))
        assert sink.flush(30.0)
    sink.close(REPORT)
    assert [each.step for each in open_run(where).readings()] == [0, 1, 2]


def test_requests_reach_the_run_and_are_answered(where: str) -> None:
    heard: list[tuple[str, Any]] = []

    def on_request(kind: str, value: Any, answer: Callable[[str], None]) -> None:
        heard.append((kind, value))
        answer(f"{kind} is done")

    sink = recorder(where, on_request=on_request)
    sink.write_reading(reading(0))
    assert sink.flush(30.0)
    run = open_run(where)
    run.ask("level", "basic")
    deadline = time.monotonic() + 30
    while not (answers := [each["answer"] for each in run.requests() if each["answer"]]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    sink.close(REPORT)
    assert heard == [("level", "basic")]
    assert answers == ["level is done"]


def test_the_processor_time_of_the_thread_is_known(tmp_path: Path) -> None:
    sink = recorder(str(tmp_path))
    for step in range(3):
        sink.write_reading(reading(step))
        assert sink.flush(30.0)
    sink.close(REPORT)
    assert 0 < sink.spent < 30
