"""The log of a training: events with a type, a message and data, kept, written to the store and told to `logging`."""

from __future__ import annotations

import difflib
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self

from seismograd import endings, folders
from seismograd.complaints import complain
from seismograd.records import attempt, rank, run_id, world_size
from seismograd.reports.report import build_report
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


class TrainingPhase(str, Enum):
    """What a training is doing."""

    INITIALIZATION = "initialization"
    DATA_LOADING = "data_loading"
    TRAINING = "training"
    VALIDATION = "validation"
    EVALUATION = "evaluation"
    CHECKPOINTING = "checkpointing"
    COMPLETED = "completed"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, phase: TrainingPhase | str) -> TrainingPhase:
        """The phase for its name; a `ValueError` lists the known ones."""
        try:
            return cls(phase.lower() if isinstance(phase, str) else phase)
        except ValueError:
            known = ", ".join(repr(known.value) for known in cls)
            raise ValueError(f"phase {phase!r} is unknown: use one of {known}") from None


class TrainingLogger:
    """Keeps the last events, writes each to a run in the store, and tells `logging`. None of that raises.

    With a `store` (a folder, a `.db` file, a `postgresql://` URL, `True` for the usual one) the events are a run there,
    which begins with the first of them. They are written by a thread of its own, within a second.
    """

    def __init__(
        self,
        *,
        store: Any = False,
        name: str = "training log",
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
        self.closed = False
        self._events: deque[dict[str, Any]] = deque(maxlen=limit)
        self._logging_failed = False
        where = folders.store(store)
        self._record = None if where is False else _Record(where, name)
        self._leave: Callable[[], object] | None = None
        if self._record is not None:
            self._leave = weakref.finalize(self, self._record.close)  # also at exit

    @property
    def run_id(self) -> str | None:
        """The id of the run in the store; `None` where the events go to none."""
        return None if self._record is None else self._record.id

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
        self._log("info", message, LogLevel.INFO, data)

    def log_warning(self, message: str, **data: Any) -> None:
        self._log("warning", message, LogLevel.WARNING, data)

    def log_error(self, message: str, **data: Any) -> None:
        self._log("error", message, LogLevel.ERROR, data)

    def flush(self) -> None:
        """Waits until the events so far are in the store."""
        if self._record is not None and not self.closed:
            self._record.recorder.flush()

    def close(self) -> None:
        """Ends the run. What is logged later is kept and told to `logging` only."""
        if not self.closed:
            self.closed = True
            if self._leave is not None:
                self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._record is not None and isinstance(error, Exception):
            self._record.ends(1, f"{type(error).__name__}: {error}".rstrip(": "), crashed=True)
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
            self._write(event)
        text = "%(message)s" if event_type == level.value else "%(event_type)s: %(message)s"
        try:
            self.logger.log(level.number, text, event, extra={"event": event}, stacklevel=3)
        except Exception as error:  # a handler of the user's
            if not self._logging_failed:
                self._logging_failed = True
                complain(f"seismograd: logging cannot take events, training goes on ({type(error).__name__}: {error})")

    def _write(self, event: Mapping[str, Any]) -> None:
        if self._record is not None:
            self._record.write(event)


class _Record:
    """The run in the store that has a logger's events: its verdict is that of the gravest."""

    def __init__(self, where: str | os.PathLike[str], name: str) -> None:
        from seismograd.store.about import about
        from seismograd.store.recorder import Recorder
        from seismograd.store.schema import limit_of, url_of

        self.id, self.name, self.started = run_id(), name, datetime.now(UTC)
        self._exit: dict[str, Any] = {"code": None, "exception": None}
        self._crashed, self._worst = False, 0
        self._forget: Callable[[], None] | None = None
        self.recorder = Recorder(
            url_of(where),
            self.id,
            name,
            rank=rank(),
            limit=limit_of(),
            about=about,
            state=self.state,
            on_request=lambda _kind, _value, answer: answer("this run is a log: there is no training to ask"),
            complain=complain,
            on_start=self._guard,
            world=world_size(),
            attempt=attempt(),
        )

    def _guard(self) -> None:
        self._forget = endings.before_a_signal_ends(self._left_by)

    def _left_by(self, code: int, signal: str) -> None:
        self.ends(code, signal)
        self.close()

    def ends(self, code: int, exception: str, *, crashed: bool = False) -> None:
        self._exit, self._crashed = {"code": code, "exception": exception}, crashed

    def write(self, event: Mapping[str, Any]) -> None:
        self._worst = max(self._worst, LogLevel(event["level"]).number)
        self.recorder.write_event({"time": time.time(), **event})
        self.recorder.open()

    def state(self) -> dict[str, Any]:
        grave = (self._worst >= logging.WARNING) + (self._worst >= logging.ERROR)
        return {"status": "crashed" if self._crashed else ("healthy", "warning", "critical")[grave], "steps": 0}

    def close(self) -> None:
        ended = datetime.now(UTC)
        times = {"started": self.started.isoformat("T", "milliseconds"), "ended": ended.isoformat("T", "milliseconds")}
        run = {"id": self.id, "name": self.name, **self.state(), **times, "exit": self._exit}
        self.recorder.close(build_report(run=run))
        if self._forget is not None:
            self._forget()


_KEYS = ("level", "limit", "log_dir", "logger", "name", "store")


def create_training_logger(config: Mapping[str, Any] | None = None) -> TrainingLogger:
    """A logger for a training, from a config with any of these:

    | key | default | |
    |---|---|---|
    | `log_dir` | `None` | the folder of the store that the events are written to, as a run; none without it |
    | `store` | `None` | the same, where it is a `.db` file or a `postgresql://` URL; `True` for the usual store |
    | `name` | `"training log"` | of the run |
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
    if folder is not None:
        if "store" in settings:
            raise ValueError("config has both log_dir and store: they mean the same, give one of them")
        if not isinstance(folder, (str, os.PathLike)):
            raise TypeError(f"log_dir is {folder!r}: it takes the path of a folder")
        settings["store"] = folder
    return TrainingLogger(**settings)
