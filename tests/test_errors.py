"""The error system: what a record holds, what it does not keep alive, and what passes on."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import seismograd as sg
from seismograd.errors import ErrorRecord, category_of
from seismograd.store import open_store


@pytest.fixture
def system() -> sg.ErrorHandlingDebuggingSystem:
    return sg.ErrorHandlingDebuggingSystem()


def fails(message: str = "boom") -> None:
    raise RuntimeError(message)


def test_an_error_is_tracked_with_all_that_is_known(system: sg.ErrorHandlingDebuggingSystem) -> None:
    try:
        fails()
    except RuntimeError as error:
        returned = system.error_tracker.track_error(
            error=error,
            severity=sg.ErrorSeverity.ERROR,
            category=sg.ErrorCategory.MODEL,
            context={"operation": "training_step"},
        )
    record = system.error_tracker.errors[-1]
    assert record is returned
    assert record.message == "boom"
    assert record.type == "RuntimeError"
    assert record.severity is sg.ErrorSeverity.ERROR
    assert record.category is sg.ErrorCategory.MODEL
    assert record.context == {"operation": "training_step"}
    assert record.timestamp.endswith("+00:00")
    assert "in fails" in record.traceback
    assert record.traceback.endswith("RuntimeError: boom\n")
    assert Path(record.where.file or "").name == "test_errors.py"
    assert "raise RuntimeError" in (record.where.code or "")
    assert json.loads(json.dumps(record.to_dict(), allow_nan=False))["where"]["line"] == record.where.line
    assert str(record).startswith("RuntimeError: boom (error in model at ")


def test_an_error_that_was_never_raised_and_a_plain_message(system: sg.ErrorHandlingDebuggingSystem) -> None:
    record = system.error_tracker.track_error(RuntimeError("boom"))
    assert record.traceback == "RuntimeError: boom\n"
    assert record.where.file is None
    record = system.error_tracker.track_error("the loader is slow", "warning", "data")
    assert (record.type, record.message, record.traceback) == ("message", "the loader is slow", "")
    assert record.severity is sg.ErrorSeverity.WARNING
    assert record.category is sg.ErrorCategory.DATA


def test_nothing_of_the_users_is_kept_alive(system: sg.ErrorHandlingDebuggingSystem) -> None:
    def step() -> weakref.ref[torch.Tensor]:
        batch = torch.ones(8)
        try:
            with system.tracking("step", batch=batch):
                raise RuntimeError("boom")
        except RuntimeError:
            return weakref.ref(batch)

    held = step()
    gc.collect()
    assert held() is None
    assert system.error_tracker.errors[-1].context["batch"]["shape"] == [8]


def test_errors_are_bounded_and_all_are_counted() -> None:
    tracker = sg.ErrorHandlingDebuggingSystem(limit=3).error_tracker
    for number in range(10):
        tracker.track_error(ValueError(str(number)), "critical" if number == 9 else "error", "data")
    assert [record.message for record in tracker.errors] == ["7", "8", "9"]
    summary = tracker.summary()
    assert summary["total"] == tracker.total == 10
    assert summary["kept"] == 3
    assert summary["by_severity"] == {"error": 9, "critical": 1}
    assert summary["by_type"] == {"ValueError": 10}
    assert summary["by_category"] == {"data": 10}
    assert summary["last"]["message"] == "9"
    json.dumps(summary, allow_nan=False)
    tracker.clear()
    assert tracker.summary() == {
        "total": 0,
        "kept": 0,
        "by_severity": {},
        "by_category": {},
        "by_type": {},
        "last": None,
    }


def test_types_made_at_run_time_do_not_fill_the_memory(system: sg.ErrorHandlingDebuggingSystem) -> None:
    for number in range(400):
        system.error_tracker.track_error(type(f"Error{number}", (Exception,), {})("x"))
    by_type = system.summary()["by_type"]
    assert len(by_type) <= 257
    assert sum(by_type.values()) == 400


def test_a_block_is_tracked_and_its_error_passes_on(system: sg.ErrorHandlingDebuggingSystem) -> None:
    block = system.tracking("training_step", category="training", epoch=3)
    with block:
        pass
    for _ in range(2):
        with pytest.raises(RuntimeError, match="boom"), block:
            fails()
    assert system.error_tracker.total == 2
    record = system.error_tracker.errors[-1]
    assert record.context == {"operation": "training_step", "epoch": 3}
    assert record.category is sg.ErrorCategory.TRAINING


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_passes_untracked(
    system: sg.ErrorHandlingDebuggingSystem, leaving: type[BaseException]
) -> None:
    with pytest.raises(leaving), system.tracking("training"):
        raise leaving
    assert system.error_tracker.total == 0


def test_nested_blocks_count_an_error_once(system: sg.ErrorHandlingDebuggingSystem) -> None:
    with pytest.raises(RuntimeError), system.tracking("epoch", epoch=1):  # noqa: SIM117
        with system.tracking("step", category="numerics", severity="critical", step=5):
            fails()
    assert system.error_tracker.total == 1
    assert system.summary()["by_category"] == {"numerics": 1}
    record = system.error_tracker.errors[-1]
    assert record.context == {"operation": "epoch", "step": 5, "epoch": 1}
    assert record.severity is sg.ErrorSeverity.CRITICAL
    other = sg.ErrorHandlingDebuggingSystem()
    with pytest.raises(RuntimeError), other.tracking("a"), system.tracking("b"):
        fails()
    assert other.error_tracker.total == 1
    assert system.error_tracker.total == 2


def test_functions_of_all_kinds_are_decorated(system: sg.ErrorHandlingDebuggingSystem) -> None:
    @system.tracking("plain")
    def plain(x: int) -> int:
        """Its text."""
        return 1 // x

    @system.tracking("coroutine")
    async def coroutine(x: int) -> int:
        await asyncio.sleep(0)
        return 1 // x

    @system.tracking("generator")
    def generator(x: int) -> Iterator[int]:
        yield x
        yield 1 // x

    assert plain(1) == asyncio.run(coroutine(1)) == 1
    assert list(generator(1)) == [1, 1]
    assert plain.__doc__ == "Its text."
    for call in (lambda: plain(0), lambda: asyncio.run(coroutine(0)), lambda: list(generator(0))):
        with pytest.raises(ZeroDivisionError):
            call()
    told = [(record.context["operation"], record.category.value) for record in system.error_tracker.errors]
    assert told == [("plain", "numerics"), ("coroutine", "numerics"), ("generator", "numerics")]


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"), "memory"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 8x2)"), "model"),
        (RuntimeError("Function 'SqrtBackward0' returned nan values in its 0th output."), "numerics"),
        (RuntimeError("Expected all tensors to be on the same device, but found cuda:0 and cpu"), "device"),
        (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed."), "data"),
        (RuntimeError("stack expects each tensor to be equal size, but got [3] at entry 0"), "data"),
        (FileNotFoundError("train.csv"), "io"),
        (ZeroDivisionError("division by zero"), "numerics"),
        (KeyError("information"), "other"),
        (ValueError("more info in the banana stand"), "other"),
    ],
)
def test_the_category_is_guessed(error: Exception, category: str) -> None:
    assert category_of(error).value == category


def test_a_training_logger_gets_each_error_as_an_event(tmp_path: Path) -> None:
    logger = sg.create_training_logger({"log_dir": tmp_path})
    system = sg.ErrorHandlingDebuggingSystem(logger)
    with pytest.raises(RuntimeError), system.tracking("step", severity="critical"), system.tracking("inner"):
        fails()
    logger.close()
    with open_store(tmp_path) as store:
        (event,) = store.run("last").events()
    assert event["event_type"] == "error"
    assert event["message"] == "RuntimeError: boom"
    assert event["level"] == "error"
    assert event["data"]["error"]["context"] == {"operation": "inner"}
    assert event["data"]["error"]["traceback"].endswith("RuntimeError: boom\n")


def test_other_sinks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mine"):
        sg.ErrorHandlingDebuggingSystem(logging.getLogger("mine")).error_tracker.track_error(
            RuntimeError("boom"), "warning"
        )
    assert caplog.records[0].levelname == "WARNING"
    assert "RuntimeError: boom" in caplog.records[0].getMessage()
    told: list[ErrorRecord] = []
    sg.ErrorHandlingDebuggingSystem(told.append).error_tracker.track_error(RuntimeError("boom"))
    assert told[0].message == "boom"

    class Own:
        said = ""

        def log_error(self, text: str) -> None:
            self.said = text

    own = Own()
    sg.ErrorHandlingDebuggingSystem(own).error_tracker.track_error(RuntimeError("boom"))
    assert own.said.startswith("RuntimeError: boom")


def test_a_sink_that_fails_is_said_once() -> None:
    def broken(record: ErrorRecord) -> None:
        raise OSError("the network is down")

    system = sg.ErrorHandlingDebuggingSystem(broken)
    with pytest.warns(RuntimeWarning, match="the network is down"):
        system.error_tracker.track_error(RuntimeError("boom"))
    system.error_tracker.track_error(RuntimeError("boom"))
    assert system.error_tracker.total == 2


class RudeError(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


def deep(left: int) -> None:
    if left:
        deep(left - 1)
    else:
        raise RuntimeError("deep" * 10_000)


def test_odd_errors(system: sg.ErrorHandlingDebuggingSystem) -> None:
    assert system.error_tracker.track_error(RudeError()).type.endswith("RudeError")
    with pytest.raises(RuntimeError), system.tracking("deep"):
        deep(200)
    record = system.error_tracker.errors[-1]
    assert len(record.traceback) < 10_000
    assert len(record.message) < 11_000
    with pytest.raises(ExceptionGroup), system.tracking("group"):
        raise ExceptionGroup("many", [ValueError("one"), TypeError("two")])
    assert "TypeError: two" in system.error_tracker.errors[-1].traceback


def test_threads_share_it(system: sg.ErrorHandlingDebuggingSystem) -> None:
    def work() -> None:
        for _ in range(100):
            system.error_tracker.track_error(RuntimeError("boom"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert system.summary()["total"] == 400 == system.summary()["by_type"]["RuntimeError"]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"error": 3}, TypeError, "error is 3: it takes an exception"),
        ({"error": RuntimeError(), "severity": "bad"}, ValueError, "severity 'bad' is unknown: use one of 'info'"),
        ({"error": RuntimeError(), "category": "cat"}, ValueError, "category 'cat' is unknown"),
        ({"error": RuntimeError(), "context": "step"}, TypeError, "context is 'step', not a mapping"),
    ],
)
def test_wrong_arguments(
    system: sg.ErrorHandlingDebuggingSystem, arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        system.error_tracker.track_error(**arguments)


def test_a_wrong_sink_or_limit() -> None:
    with pytest.raises(TypeError, match="logger is 3: give what create_training_logger returns"):
        sg.ErrorHandlingDebuggingSystem(3)
    with pytest.raises(ValueError, match="limit is 0"):
        sg.ErrorHandlingDebuggingSystem(limit=0)
