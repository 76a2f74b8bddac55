"""`logging` and `warnings` as people expect them: nothing twice, all of it filterable, training never ended."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import rich.console

import seismograd as sg
from seismograd.complaints import complain
from seismograd.sinks import Console, Logging, as_sinks

from .trainings import train


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("seismograd.tested")
    made.setLevel(logging.INFO)
    yield made
    made.handlers.clear()
    made.propagate = True


class Failing:
    """A sink that fails at once."""

    def write_reading(self, reading: object) -> None:
        raise OSError("no room")

    write_finding = update_finding = close = write_reading


@pytest.mark.parametrize("same", [True, False])
def test_what_logging_shows_on_the_terminal_the_console_does_not_tell_again(same: bool, logger: logging.Logger) -> None:
    terminal, other = io.StringIO(), io.StringIO()
    logger.addHandler(logging.StreamHandler(terminal if same else other))
    console, _ = as_sinks([Console(rich.console.Console(file=terminal, width=80)), Logging(logger)])
    train(console, Logging(logger), sick=True, store=False)
    before, _, verdict = terminal.getvalue().partition("\nseismograd: critical after 12 steps")
    assert before.count("The loss is NaN") == 1
    assert ("critical[nonfinite-loss]" in before) is not same
    assert "critical[nonfinite-loss]" in verdict, "the verdict is always given"
    assert other.getvalue().count("nonfinite-loss: The loss is NaN") == (0 if same else 1)


@pytest.mark.parametrize(
    ("level", "propagate", "seen"),
    [(logging.WARNING, True, True), (logging.CRITICAL + 1, True, False), (logging.WARNING, False, False)],
)
def test_whether_a_line_is_seen_follows_levels_and_propagation(
    level: int, propagate: bool, seen: bool, logger: logging.Logger
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)
    parent = logging.getLogger("seismograd")
    parent.addHandler(handler)
    logger.propagate = propagate
    try:
        assert Logging(logger).is_seen(logging.CRITICAL, stream) is seen
    finally:
        parent.removeHandler(handler)


def test_every_warning_has_a_category_of_ours() -> None:
    assert issubclass(sg.SeismogradWarning, RuntimeWarning)
    assert issubclass(sg.SeismogradWarning, UserWarning)
    with pytest.warns(sg.SeismogradWarning, match="sink Failing failed, training goes on without it"):
        train(Failing(), sick=False, store=False)
    with pytest.warns(sg.SeismogradWarning, match="names no finding"):
        sg.TrainingDebugger(ignore="loss-spikes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sg.SeismogradWarning)
        train(Failing(), sick=False, store=False)


def test_warnings_that_are_errors_do_not_reach_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch = train(Failing(), sick=False, store=False, ignore="loss-spikes")
    assert "blind-probe" in {finding.id for finding in watch.findings}
    assert "sink Failing failed, training goes on" in capsys.readouterr().err


def test_logging_takes_warnings_that_it_captures(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        try:
            complain("seismograd: something of ours failed")
        finally:
            logging.captureWarnings(False)
    (record,) = [record for record in caplog.records if record.name == "py.warnings"]
    assert "SeismogradWarning: seismograd: something of ours failed" in record.getMessage()


def test_the_interpreters_own_option_can_name_it() -> None:
    code = "import seismograd.complaints as c; c.complain('hello')"
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""
    command = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == "hello\n"
