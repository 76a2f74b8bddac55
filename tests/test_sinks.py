"""Sinks on hand-made findings."""

from __future__ import annotations

import io
import logging
from dataclasses import replace
from typing import Any

import pytest
import rich.console

from seismograd.protocols import Sink
from seismograd.records import Finding, Reading, Severity
from seismograd.reports.report import build_report
from seismograd.sinks import Callback, Console, Logging, Memory, as_sink

FOUND = Finding("loss-spike", Severity.WARNING, 7, "the loss jumped", evidence={"loss": 9.0}, recommendations=("wait",))
AGAIN = replace(FOUND, count=2, last_step=8)
WORSE = replace(FOUND, count=3, last_step=9, severity=Severity.CRITICAL, message="the loss is gone")


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def console(out: io.StringIO, **options: Any) -> Console:
    return Console(rich.console.Console(file=out, width=80), **options)


@pytest.mark.parametrize("sink", [Callback(print), Console(), Logging(), Memory()], ids=lambda s: type(s).__name__)
def test_each_is_a_sink_that_takes_everything(sink: Sink) -> None:
    assert isinstance(sink, Sink)
    assert as_sink(sink) is sink
    sink.write_reading(Reading(1, {"loss": 1.0}))
    sink.write_finding(FOUND)
    sink.update_finding(AGAIN)
    sink.close(build_report(run={}, findings=[AGAIN]))


def test_the_console_tells_a_fault_once_and_again_when_it_got_worse(out: io.StringIO) -> None:
    sink = console(out)
    sink.write_finding(FOUND)
    assert out.getvalue() == "warning[loss-spike]: the loss jumped\n  --> step 7\n   = help: wait\n"
    sink.update_finding(AGAIN)
    assert out.getvalue().count("loss-spike") == 1
    sink.update_finding(WORSE)
    sink.update_finding(replace(WORSE, count=4))
    assert out.getvalue().count("critical[loss-spike]: the loss is gone") == 1


def test_the_console_ends_with_the_verdict(out: io.StringIO) -> None:
    console(out).close(build_report(run={"steps": 9}, findings=[AGAIN]))
    assert out.getvalue().startswith("\nseismograd: warning after 9 steps, 1 warning\n\nwarning[loss-spike]")


def test_the_console_is_silent_after_a_run_without_faults(out: io.StringIO) -> None:
    remark = replace(FOUND, severity=Severity.INFO)
    console(out).close(build_report(run={"steps": 9}, findings=[remark]))
    assert out.getvalue() == ""


def test_without_a_verdict_to_come_a_finding_is_told_in_full(out: io.StringIO) -> None:
    sink = console(out, verdict=False)
    sink.write_finding(FOUND)
    assert "= evidence: loss=9" in out.getvalue()
    told = out.getvalue()
    sink.close(build_report(run={}, findings=[FOUND]))
    assert out.getvalue() == told


def test_the_console_speaks_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Console().write_finding(FOUND)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "warning[loss-spike]" in captured.err


def test_logging_gives_level_text_and_the_whole_finding(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sink = Logging()
    for each in (FOUND, WORSE):
        sink.update_finding(each)
        sink.update_finding(replace(each, count=9))
    sink.write_finding(Finding("lr-jump", Severity.INFO, 1, "a jump", evidence={"ratio": float("inf")}))
    sink.close(build_report(run={"steps": 9}, findings=[WORSE]))
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("seismograd", "WARNING", "loss-spike: the loss jumped (step 7)"),
        ("seismograd", "CRITICAL", "loss-spike: the loss is gone (steps 7 to 9 (3 times))"),
        ("seismograd", "INFO", "lr-jump: a jump (step 1)"),
        ("seismograd", "INFO", "run critical after 9 steps"),
    ]
    assert caplog.records[0].finding["id"] == "loss-spike"  # type: ignore[attr-defined]
    assert caplog.records[2].finding["evidence"] == {"ratio": "Infinity"}  # type: ignore[attr-defined]


def test_logging_that_nobody_set_up_stays_silent() -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("seismograd").handlers)


def test_a_callback_is_called_once_for_a_fault() -> None:
    told: list[Finding] = []
    sink = as_sink(told.append)
    sink.write_reading(Reading(1))
    sink.write_finding(FOUND)
    sink.update_finding(WORSE)
    sink.close({})
    assert told == [FOUND]


def test_memory_keeps_the_last_and_no_more() -> None:
    sink = Memory(limit=3)
    for step in range(9):
        sink.write_reading(Reading(step, {"loss": step / 2} if step != 7 else {}))
        sink.write_finding(Finding(f"f{step}", Severity.INFO, step, ""))
    sink.write_finding(FOUND)
    sink.update_finding(WORSE)
    sink.close({"schema": 1})
    assert [reading.step for reading in sink.readings] == [6, 7, 8]
    assert sink.series("loss") == ([6, 8], [3.0, 4.0])
    assert [finding.id for finding in sink.findings] == ["f7", "f8", "loss-spike"]
    assert sink.findings[-1] is WORSE
    assert sink.report == {"schema": 1}
    with pytest.raises(ValueError, match="limit 0 keeps nothing"):
        Memory(0)


def test_a_logger_becomes_a_sink() -> None:
    logger = logging.getLogger("mine")
    sink = as_sink(logger)
    assert isinstance(sink, Logging)
    assert sink.logger is logger
    assert isinstance(as_sink(logging.LoggerAdapter(logger, {})), Logging)


@pytest.mark.parametrize("wrong", [None, 3, object()])
def test_what_is_no_sink_is_refused_with_what_would_be(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"is not a sink: give an object with write_reading, .* a function"):
        as_sink(wrong)


def test_a_class_instead_of_an_object_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Memory is a class, and a sink is an object: write Memory\(\)"):
        as_sink(Memory)
