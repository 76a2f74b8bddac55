"""The queue between training and tracker: what is kept, what is thinned, and what happens when a tracker fails."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

import seismograd as sg
from seismograd.records import Finding, Reading, Severity
from seismograd.sinks import Memory
from seismograd.sinks import relay as module
from seismograd.sinks.relay import Point, Relay

from .trainings import STEPS, train

FOUND = Finding("loss-spike", Severity.WARNING, 7, "the loss jumped")


class Tracker(Relay):
    """Keeps what it is given; fails as often as it is told to."""

    title: ClassVar[str] = "Tracker"

    def __init__(self, failures: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.failures = failures
        self.points: list[Point] = []
        self.findings: list[Finding] = []
        self.reports: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.let_go = threading.Event()
        self.let_go.set()
        self.begin({"id": "r", "name": "n"}, lambda *_: None, self.said.append)

    def _send(self, points: Sequence[Point]) -> None:
        self.let_go.wait(20)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("nobody there")
        self.points += points

    def _send_finding(self, finding: Finding) -> None:
        self.findings.append(finding)

    def _finish(self, report: dict[str, Any]) -> None:
        self.reports.append(report)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACE", 0.01)
    monkeypatch.setattr(module, "FIRST_WAIT", 0.01)


def steps(tracker: Tracker, name: str = "seismograd/loss") -> list[int]:
    return [point.step for point in tracker.points if name in point.scalars]


def test_everything_of_a_short_run_arrives_in_order() -> None:
    tracker = Tracker()
    for step in range(3000):
        tracker.write_reading(Reading(step, {"loss": 1.0, "update/step": 3.0}))
    tracker.write_reading(Reading(3000))
    tracker.close({"schema": 1})
    assert steps(tracker) == list(range(3000))
    assert set(tracker.points[0].scalars) == {"seismograd/loss"}
    assert tracker.reports == [{"schema": 1}]
    assert tracker.said == []


def test_a_long_run_is_sampled_but_neither_rare_values_nor_the_turn_to_nan_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FULL", 100)
    tracker = Tracker()
    for step in range(10_000):
        scalars = {"loss": math.nan if 9001 <= step < 9003 else 1.0}
        if step % 999 == 0:
            scalars["val_loss"] = 2.0
        tracker.write_reading(Reading(step, scalars))
        if step % 1000 == 0:
            tracker.flush()
    tracker.close({})
    assert steps(tracker)[:100] == list(range(100))
    assert 300 < len(tracker.points) < 700
    assert steps(tracker, "seismograd/val_loss") == list(range(0, 10_000, 999))
    bad = [point.step for point in tracker.points if math.isnan(point.scalars["seismograd/loss"])]
    assert bad == [9001]
    assert 9003 in steps(tracker)


def test_a_tracker_that_is_slow_is_not_waited_for_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 64)
    tracker = Tracker(every=1)
    tracker.let_go.clear()
    for step in range(5000):
        tracker.write_reading(Reading(step, {"loss": 1.0}))
        assert len(tracker._queue) <= 64
    tracker.let_go.set()
    tracker.close({})
    assert tracker.thinned + len(tracker.points) == 5000
    assert steps(tracker) == sorted(steps(tracker))
    assert 4999 in steps(tracker) or 4998 in steps(tracker)


def test_what_is_thinned_while_it_is_taken_stays_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the lock a third of these rounds ended out of order."""
    monkeypatch.setattr(module, "MOST", 8)
    monkeypatch.setattr(module, "PACE", 0.0001)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(8):
            tracker = Tracker(every=1)
            for step in range(4000):
                tracker.write_reading(Reading(step, {"loss": 1.0}))
            tracker.close({})
            assert steps(tracker) == sorted(steps(tracker))
            assert tracker.thinned + len(tracker.points) == 4000
    finally:
        sys.setswitchinterval(before)


def test_a_finding_is_told_once_and_again_when_it_got_worse() -> None:
    tracker = Tracker()
    tracker.write_finding(FOUND)
    tracker.flush()
    for count in range(2, 50):
        tracker.update_finding(replace(FOUND, count=count))
    tracker.update_finding(replace(FOUND, count=50, severity=Severity.CRITICAL))
    tracker.close({})
    assert [finding.severity for finding in tracker.findings] == [Severity.WARNING, Severity.CRITICAL]


def test_what_failed_is_handed_over_later_and_said_once() -> None:
    tracker = Tracker(failures=3)
    for step in range(10):
        tracker.write_reading(Reading(step, {"loss": 1.0}))
    while tracker.failures:
        threading.Event().wait(0.005)
    tracker.close({})
    assert steps(tracker) == list(range(10))
    assert tracker.said == [
        "seismograd: Tracker cannot be written to at present, training goes on (ConnectionError: nobody there)"
    ]


def test_the_end_does_not_wait_for_a_tracker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    tracker = Tracker()
    tracker.let_go.clear()
    tracker.write_reading(Reading(0, {"loss": 1.0}))
    tracker.close({})
    assert tracker.said == ["seismograd: Tracker does not have the report, the run is over"]
    tracker.let_go.set()
    assert tracker._thread is not None
    tracker._thread.join(10)


def test_a_run_without_readings_leaves_nothing_behind() -> None:
    tracker = Tracker()
    tracker.write_reading(Reading(0))
    tracker.close({})
    assert tracker._thread is None
    assert tracker.reports == []


def test_one_sink_is_for_one_run() -> None:
    tracker = Tracker()
    tracker.write_reading(Reading(0, {"loss": 1.0}))
    tracker.close({})
    with pytest.raises(ValueError, match="has had its run: make another sink for 'second'"):
        tracker.begin({"id": "s", "name": "second"}, lambda *_: None, lambda _: None)


@pytest.mark.parametrize("options", [{"every": 0}, {"every": True}, {"rank": -1}, {"rank": "all"}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it takes"):
        Tracker(**options)


def test_a_sink_that_cannot_begin_leaves_the_others_and_the_training_alone() -> None:
    class Broken(Tracker):
        def begin(self, run: Any, *others: Any) -> None:
            if run["name"] == "training":
                raise OSError("no such place")

    kept = Memory()
    with pytest.warns(sg.SeismogradWarning, match="sink Broken failed, training goes on without it"):
        watch = train(Broken(), kept, sick=False, store=False)
    assert watch.status == "healthy"
    assert {reading.step for reading in kept.readings} == set(range(STEPS))


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_what_ends_the_training_early_costs_no_reading_and_no_report(raised: type[BaseException]) -> None:
    class Late(Tracker):
        def begin(self, *_: Any) -> None: ...

    def stop(step: int, loss: float) -> None:
        if step == 5:
            raise raised

    late = Late()
    with pytest.raises(raised):
        train(late, sick=False, store=False, each=stop)
    assert {point.step for point in late.points} == set(range(6))
    (report,) = late.reports
    assert report["run"]["steps"] == 6
