"""The training logger: what an event looks like, that it is in the store, and that it never stops a training."""

from __future__ import annotations

import gc
import json
import logging
import math
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seismograd as sg
from seismograd.store import StoreError, open_store


def stored(folder: Path) -> list[dict[str, Any]]:
    """The events of the newest run there."""
    with open_store(folder) as store:
        return store.run("last").events()


def test_an_event_is_kept_stored_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = sg.create_training_logger({"log_dir": str(tmp_path / "new" / "logs"), "name": "mine"})
    with caplog.at_level(logging.INFO, logger="seismograd"):
        logger.log_training_event("training_step", "step done", level=sg.LogLevel.INFO, gradient_info={"norm": 1.5})
    logger.flush()
    (event,) = logger.events
    (there,) = stored(tmp_path / "new" / "logs")
    assert {key: value for key, value in there.items() if key not in ("id", "timestamp")} == {
        "event_type": "training_step",
        "message": "step done",
        "level": "info",
        "rank": 0,
        "data": {"gradient_info": {"norm": 1.5}},
    }
    assert {key: event[key] for key in event if key != "timestamp"}.items() <= there.items()
    assert event["timestamp"].endswith("+00:00")
    (record,) = caplog.records
    assert record.getMessage() == "training_step: step done"
    assert record.levelno == logging.INFO
    assert record.event == event
    assert record.filename == Path(__file__).name
    with open_store(tmp_path / "new" / "logs") as store:
        run = store.run("last")
        assert (run.name, run.id, run.live) == ("mine", logger.run_id, True)
        assert run.about["pid"]
        logger.close()
        assert run.refresh().ended is not None
        assert run.status == "healthy"


@pytest.mark.parametrize(
    ("level", "status"), [("debug", "healthy"), ("warning", "warning"), ("error", "critical"), ("critical", "critical")]
)
def test_the_run_of_a_log_is_as_grave_as_its_gravest_event(tmp_path: Path, level: str, status: str) -> None:
    with sg.create_training_logger({"store": tmp_path / "log.db"}) as logger:
        logger.log_training_event("x", "y", level=level)
        logger.log_info("z")
    with open_store(tmp_path / "log.db") as store:
        assert store.run("last").status == store.run("last").report()["run"]["status"] == status


def test_a_log_that_ends_with_an_exception_has_crashed(tmp_path: Path) -> None:
    logger = sg.create_training_logger({"log_dir": tmp_path})
    logger.log_info("one")
    with pytest.raises(KeyError), logger:
        raise KeyError("two")
    with open_store(tmp_path) as store:
        report = store.run("last").report()
    assert report["run"]["status"] == "crashed"
    assert report["run"]["exit"]["exception"] == "KeyError: 'two'"


def test_nothing_is_made_before_the_first_event(tmp_path: Path) -> None:
    with sg.create_training_logger({"log_dir": tmp_path / "logs"}):
        pass
    assert not (tmp_path / "logs").exists()


def test_a_logger_that_is_forgotten_ends_its_run_and_its_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    logger = sg.create_training_logger({"log_dir": tmp_path})
    logger.log_info("one")
    (thread,) = set(threading.enumerate()) - before
    del logger
    gc.collect()
    assert not thread.is_alive()
    with open_store(tmp_path) as store:
        assert store.run("last").ended is not None


def test_a_log_answers_that_there_is_nothing_to_ask(tmp_path: Path) -> None:
    with sg.create_training_logger({"log_dir": tmp_path}) as logger:
        logger.log_info("one")
        logger.flush()
        with open_store(tmp_path) as store:
            store.run("last").ask("level", "basic")
    with open_store(tmp_path) as store:
        (request,) = store.run("last").requests()
    assert request["answer"] == "this run is a log: there is no training to ask"


def test_the_short_forms_have_their_level(caplog: pytest.LogCaptureFixture) -> None:
    logger = sg.create_training_logger()
    with caplog.at_level(logging.INFO, logger="seismograd"):
        logger.log_info("one")
        logger.log_warning("two", batch=3)
        logger.log_error("100% of three")
    assert [(e["level"], e["message"]) for e in logger.events] == [
        ("info", "one"),
        ("warning", "two"),
        ("error", "100% of three"),
    ]
    assert [(r.levelname, r.getMessage(), r.filename) for r in caplog.records][2] == (
        "ERROR",
        "100% of three",
        Path(__file__).name,
    )
    assert logger.events[1]["data"] == {"batch": 3}


@pytest.mark.parametrize(
    ("ending", "code", "status"),
    [
        ("os._exit(9)", 9, "lost"),
        ("sys.exit(3)", 3, "ended"),
        ("raise KeyError", 1, "ended"),
        ("os.kill(os.getpid(), 15)", -15, "ended"),
    ],
)
def test_an_event_survives_the_death_of_the_process(tmp_path: Path, ending: str, code: int, status: str) -> None:
    program = (
        "import os, sys, seismograd as sg\n"
        "logger = sg.create_training_logger({'log_dir': sys.argv[1]})\n"
        "logger.log_info('the last words')\n"
        f"{'logger.flush()' if status == 'lost' else ''}\n"
        f"{ending}"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, capture_output=True)
    assert done.returncode == code
    with open_store(tmp_path) as store:
        run = store.run("last")
        assert run.events()[0]["message"] == "the last words"
        assert (run.ended is not None) is (status == "ended")


@dataclass
class Point:
    x: float
    weights: torch.Tensor


class Rude:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_data_is_told_in_numbers() -> None:
    logger = sg.create_training_logger()
    tensor = torch.tensor([[1.0, 3.0], [math.nan, math.inf]], requires_grad=True)
    logger.log_training_event(
        "odd",
        "data",
        loss=torch.tensor(0.5, requires_grad=True),
        tensor=tensor,
        array=np.array([1, 2, 6]),
        scalar=np.float32(2.5),
        nan=math.nan,
        level_of=sg.LogLevel.ERROR,
        path=Path("a/b"),
        point=Point(1.0, torch.ones(3)),
        rude=Rude(),
        names={1: ("a", {"b"})},
    )
    data = logger.events[-1]["data"]
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["loss"] == 0.5
    assert data["scalar"] == 2.5
    assert data["nan"] == "NaN"
    assert data["path"] == "a/b"
    assert data["tensor"] == {
        "shape": [2, 2],
        "dtype": "float32",
        "min": 1.0,
        "max": 3.0,
        "mean": 2.0,
        "nan": 1,
        "inf": 1,
    }
    assert data["array"] == {"shape": [3], "dtype": "int64", "min": 1, "max": 6, "mean": 3.0}
    assert data["point"] == {
        "x": 1.0,
        "weights": {"shape": [3], "dtype": "float32", "min": 1.0, "max": 1.0, "mean": 1.0},
    }
    assert data["rude"] == "<Rude: RuntimeError>"
    assert data["names"] == {"1": ["a", ["b"]]}
    assert data["level_of"] == "error"


def test_large_and_endless_data_is_cut() -> None:
    logger = sg.create_training_logger()
    endless: list[Any] = []
    endless.append(endless)
    logger.log_info("x" * 100_000, text="y" * 100_000, many=list(range(10_000)), endless=endless)
    assert len(json.dumps(logger.events[-1])) < 40_000
    assert logger.events[-1]["data"]["many"][-1] == "... 9744 more"


def test_what_matters_less_than_the_level_is_left_out() -> None:
    logger = sg.create_training_logger({"level": "WARNING"})
    logger.log_info("no")
    logger.log_training_event("x", "no", level=logging.DEBUG)
    logger.log_training_event("x", "yes", level="error")
    assert [event["message"] for event in logger.events] == ["yes"]


def test_the_events_in_memory_are_bounded(tmp_path: Path) -> None:
    logger = sg.create_training_logger({"limit": 3, "log_dir": tmp_path})
    for number in range(10):
        logger.log_info(str(number))
    assert [event["message"] for event in logger.events] == ["7", "8", "9"]
    logger.close()
    assert len(stored(tmp_path)) == 10


def test_after_close_nothing_is_written(tmp_path: Path) -> None:
    logger = sg.create_training_logger({"log_dir": tmp_path})
    logger.log_info("in")
    logger.close()
    logger.close()
    logger.log_info("late")
    assert len(stored(tmp_path)) == 1
    assert len(logger.events) == 2


class Full(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError(28, "No space left on device")


def test_a_handler_that_fails_warns_once_and_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = logging.Logger("theirs")
    theirs.addHandler(Full())
    logger = sg.create_training_logger({"logger": theirs})
    with pytest.warns(RuntimeWarning, match="No space left"):
        logger.log_info("step")
    logger.log_info("step")
    other = sg.create_training_logger({"logger": theirs})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.log_info("step")
    assert "No space left" in capsys.readouterr().err
    assert len(logger.events) == 2


def test_a_store_that_cannot_be_written_warns_once_and_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "seismograd.db").write_bytes(b"no database at all, but long enough to be taken for one" * 20)
    logger = sg.create_training_logger({"log_dir": tmp_path})
    logger.log_info("one")
    with pytest.warns(RuntimeWarning, match="cannot be recorded at present, training goes on") as told:
        logger.close()
    assert len(told) == 1
    logger.log_info("two")
    assert len(logger.events) == 2


def test_threads_share_it(tmp_path: Path) -> None:
    logger = sg.create_training_logger({"log_dir": tmp_path})
    threads = [
        threading.Thread(target=lambda: [logger.log_info("x" * 500) for _ in range(50)] and None) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logger.close()
    assert len(stored(tmp_path)) == 200 == len(logger.events)


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"logdir": "x"}, ValueError, "'logdir': did you mean 'log_dir'"),
        ({"lr": 0.1}, ValueError, "known are 'level', 'limit', 'log_dir', 'logger', 'name', 'store'"),
        ("logs", TypeError, "config is 'logs', not a mapping"),
        ({"log_dir": 3}, TypeError, "log_dir is 3"),
        ({"store": 3}, TypeError, "store is 3"),
        ({"store": "mysql://x/y"}, StoreError, "cannot be kept in 'mysql'"),
        ({"log_dir": "a", "store": "b"}, ValueError, "both log_dir and store"),
        ({"level": "loud"}, ValueError, "level 'loud' is unknown: use one of 'debug'"),
        ({"limit": 0}, ValueError, "limit is 0"),
        ({"logger": 3}, TypeError, "logger is 3"),
    ],
)
def test_a_wrong_config_is_refused(config: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        sg.create_training_logger(config)


def test_what_is_no_folder_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"neither a folder nor a \.db file"):
        sg.create_training_logger({"log_dir": tmp_path / "file"})


def test_a_logger_of_the_users_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mine"):
        sg.create_training_logger({"logger": "mine"}).log_info("one")
        sg.create_training_logger({"logger": logging.getLogger("mine")}).log_info("two")
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("mine", "one"), ("mine", "two")]


def test_levels() -> None:
    assert [level.name for level in sg.LogLevel] == ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    assert sg.LogLevel.of("Error") is sg.LogLevel.of(40) is sg.LogLevel.ERROR
    assert str(sg.LogLevel.INFO) == "info"


def test_phases() -> None:
    assert sg.TrainingPhase.of("Training") is sg.TrainingPhase.TRAINING
    with pytest.raises(ValueError, match="phase 'lunch' is unknown: use one of 'initialization'"):
        sg.TrainingPhase.of("lunch")
