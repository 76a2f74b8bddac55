"""The training logger: what an event looks like, where it goes, and that it never stops a training."""

from __future__ import annotations

import json
import logging
import math
import os
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
from seismograd.logger import EventFile, TrainingLogger


def lines(folder: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no strict JSON")

    text = (folder / "events.jsonl").read_text(encoding="utf-8")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_an_event_is_kept_written_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = sg.create_training_logger({"log_dir": str(tmp_path / "new" / "logs")})
    with caplog.at_level(logging.INFO, logger="seismograd"):
        logger.log_training_event("training_step", "step done", level=sg.LogLevel.INFO, gradient_info={"norm": 1.5})
    (event,) = lines(tmp_path / "new" / "logs")
    assert logger.events == [event]
    assert event["event_type"] == "training_step"
    assert event["message"] == "step done"
    assert event["level"] == "info"
    assert event["data"] == {"gradient_info": {"norm": 1.5}}
    assert event["timestamp"].endswith("+00:00")
    (record,) = caplog.records
    assert record.getMessage() == "training_step: step done"
    assert record.levelno == logging.INFO
    assert record.event == event
    assert record.filename == Path(__file__).name


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


def test_an_event_survives_the_death_of_the_process(tmp_path: Path) -> None:
    program = (
        "import os, sys, seismograd as sg\n"
        "logger = sg.create_training_logger({'log_dir': sys.argv[1]})\n"
        "logger.log_info('the last words')\n"
        "os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == 9
    assert lines(tmp_path)[0]["message"] == "the last words"


def test_a_second_run_appends_also_after_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event_type": "old"}\n{"event_ty')
    with sg.create_training_logger({"log_dir": tmp_path}) as logger:
        logger.log_info("new")
        logger.log_info("newer")
    text = (tmp_path / "events.jsonl").read_text().splitlines()
    assert len(text) == 4
    assert json.loads(text[2])["message"] == "new"
    assert json.loads(text[3])["message"] == "newer"


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
    assert len(lines(tmp_path)) == 10


def test_after_close_nothing_is_written(tmp_path: Path) -> None:
    logger = sg.create_training_logger({"log_dir": tmp_path})
    logger.log_info("in")
    logger.close()
    logger.close()
    logger.log_info("late")
    assert len(lines(tmp_path)) == 1
    assert len(logger.events) == 2


class FullDisk:
    def __init__(self) -> None:
        self.full = True
        self.taken: list[Any] = []

    def write(self, event: Any) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.taken.append(event)

    def close(self) -> None:
        raise OSError(5, "Input/output error")


def test_a_full_disk_warns_once_and_training_goes_on() -> None:
    disk = FullDisk()
    logger = TrainingLogger(disk)
    with pytest.warns(RuntimeWarning, match="No space left"):
        logger.log_info("step")
    logger.log_info("step")
    disk.full = False
    logger.log_info("there is space again")
    logger.close()
    assert logger.lost == 2
    assert len(disk.taken) == 1
    assert len(logger.events) == 3


def test_it_does_not_raise_where_warnings_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    logger = TrainingLogger(FullDisk())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.log_info("step")
    assert "No space left" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_the_file_itself_raises_for_the_logger_to_catch() -> None:
    with pytest.warns(RuntimeWarning, match="training goes on"):
        TrainingLogger(EventFile("/dev/full")).log_info("step")


def test_threads_share_it(tmp_path: Path) -> None:
    logger = sg.create_training_logger({"log_dir": tmp_path})
    threads = [
        threading.Thread(target=lambda: [logger.log_info("x" * 500) for _ in range(50)] and None) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(tmp_path)) == 200 == len(logger.events)


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"logdir": "x"}, ValueError, "'logdir': did you mean 'log_dir'"),
        ({"lr": 0.1}, ValueError, "known are 'level', 'limit', 'log_dir', 'logger'"),
        ("logs", TypeError, "config is 'logs', not a mapping"),
        ({"log_dir": 3}, TypeError, "log_dir is 3"),
        ({"level": "loud"}, ValueError, "level 'loud' is unknown: use one of 'debug'"),
        ({"limit": 0}, ValueError, "limit is 0"),
        ({"logger": 3}, TypeError, "logger is 3"),
    ],
)
def test_a_wrong_config_is_refused(config: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        sg.create_training_logger(config)


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"events cannot be written to .*: give a folder"):
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
