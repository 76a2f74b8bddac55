"""The log of a training: events with a type, a message and data, kept, written to a file and told to `logging`."""

from __future__ import annotations

import difflib
import errno
import json
import logging
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from seismograd.records import rank
from seismograd.stats.plain import plain

logging.getLogger("seismograd").addHandler(logging.NullHandler())

LIMIT = 1000
"""So many of the last events are kept in memory."""


class LogLevel(str, Enum):
    """How much an event matters, as in `logging`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def number(self) -> int:
        """The same level as a number of `logging`."""
        return int(getattr(logging, self.name))

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, level: LogLevel | str | int) -> LogLevel:
        """The level for its name or its number in `logging`; a `ValueError` lists the known ones."""
        if isinstance(level, cls):
            return level
        for known in cls:
            if level == known.number or (isinstance(level, str) and level.lower() == known.value):
                return known
        raise ValueError(f"level {level!r} is unknown: use one of {', '.join(repr(known.value) for known in cls)}")


class Writer(Protocol):
    """Takes events, one by one. `write` may raise: the logger says so once and goes on."""

    def write(self, event: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class EventFile:
    """Appends each event to a file as a line of strict JSON, which is with the system when `write` returns.

    The file is opened anew for each: nothing is lost in a crash, processes that were forked may write to it too, and it
    may be moved away meanwhile.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 1))
                self._torn = file.read(1) not in (b"", b"\n")
        except OSError as error:
            raise OSError(
                error.errno or errno.EIO,
                f"events cannot be written to {str(self.path)!r} ({error.strerror or error}): give a folder that can be"
                " written as log_dir",
            ) from error

    def write(self, event: Mapping[str, Any]) -> None:
        line = json.dumps(event, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        if self._torn:  # whoever wrote last did not get to the end of the line
            line = b"\n" + line
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            written = os.write(file, line)
        finally:
            os.close(file)
        self._torn = written < len(line) and written > 0
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def close(self) -> None: ...


class TrainingLogger:
    """Keeps the last events, hands each to its writers and to `logging`. None of that raises into the training."""

    def __init__(
        self,
        *writers: Writer,
        level: LogLevel | str | int = LogLevel.DEBUG,
        limit: int = LIMIT,
        logger: logging.Logger | str = "seismograd",
    ) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"limit is {limit!r}: it takes how many events are kept, 1 or more")
        if not isinstance(logger, (str, logging.Logger)):
            raise TypeError(f"logger is {logger!r}: it takes a logging.Logger or its name")
        self.level = LogLevel.of(level)
        self.logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self.lost = 0
        """How many events a writer could not take."""
        self.closed = False
        self._writers = writers
        self._events: deque[dict[str, Any]] = deque(maxlen=limit)
        self._failed: set[str] = set()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The last events, the oldest first: `timestamp`, `event_type`, `message`, `level`, `rank`, `data`."""
        return list(self._events)

    def log_training_event(
        self, event_type: str, message: str, level: LogLevel | str | int = LogLevel.INFO, **data: Any
    ) -> None:
        """Logs an event of a type of your own, with any data: tensors and arrays are told in a few numbers."""
        self._log(event_type, message, LogLevel.of(level), data)

    def log_info(self, message: str, **data: Any) -> None:
        self._log("message", message, LogLevel.INFO, data)

    def log_warning(self, message: str, **data: Any) -> None:
        self._log("message", message, LogLevel.WARNING, data)

    def log_error(self, message: str, **data: Any) -> None:
        self._log("message", message, LogLevel.ERROR, data)

    def close(self) -> None:
        """Ends the writing. What is logged later is kept and told to `logging` only."""
        if self.closed:
            return
        self.closed = True
        for writer in self._writers:
            self._try(type(writer).__name__, writer.close)

    def __enter__(self) -> TrainingLogger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log(self, event_type: str, message: str, level: LogLevel, data: Mapping[str, Any]) -> None:
        if level.number < self.level.number:
            return
        event = {
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event_type": plain(str(event_type)),
            "message": plain(str(message)),
            "level": level.value,
            "rank": rank(),
            "data": plain(data),
        }
        self._events.append(event)
        if not self.closed:
            for writer in self._writers:
                self.lost += not self._try(type(writer).__name__, writer.write, event)
        text = "%(message)s" if event_type == "message" else "%(event_type)s: %(message)s"
        self._try("logging", self.logger.log, level.number, text, event, extra={"event": event}, stacklevel=4)

    def _try(self, part: str, act: Callable[..., object], *args: Any, **kwargs: Any) -> bool:
        try:
            act(*args, **kwargs)
        except Exception as error:
            if part not in self._failed:
                self._failed.add(part)
                complain(f"seismograd: {part} cannot take events, training goes on ({type(error).__name__}: {error})")
            return False
        return True


def complain(text: str) -> None:
    """Warns, and never raises: where the user turns warnings into errors it is said on stderr."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except Exception:
        print(text, file=sys.stderr)  # noqa: T201


_KEYS = ("level", "limit", "log_dir", "logger")


def create_training_logger(config: Mapping[str, Any] | None = None) -> TrainingLogger:
    """A logger for a training, from a config with any of these:

    | key | default | |
    |---|---|---|
    | `log_dir` | `None` | the folder whose `events.jsonl` each event is appended to; none without it |
    | `level` | `"debug"` | what matters less is left out |
    | `limit` | `1000` | how many of the last events are kept in memory |
    | `logger` | `"seismograd"` | the `logging.Logger`, or its name, that is told of each event |
    """
    if config is None:
        config = {}
    if not isinstance(config, Mapping):
        raise TypeError(f'config is {config!r}, not a mapping: write create_training_logger({{"log_dir": "logs"}})')
    for key in config:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(map(repr, _KEYS))}"
            raise ValueError(f"config has an unknown key {key!r}: {hint}")
    settings = {key: value for key, value in config.items() if value is not None}
    folder = settings.pop("log_dir", None)
    if folder is None:
        return TrainingLogger(**settings)
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"log_dir is {folder!r}: it takes the path of a folder")
    return TrainingLogger(EventFile(Path(folder) / "events.jsonl"), **settings)
