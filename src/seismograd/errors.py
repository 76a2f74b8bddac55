"""What was raised in a training: tracked with its severity, category and context, and never kept alive by that."""

from __future__ import annotations

import inspect
import linecache
import logging
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import Enum
from functools import wraps
from typing import Any, TypeVar

from seismograd.complaints import complain
from seismograd.logger import LogLevel
from seismograd.places import is_users, spot_of, written
from seismograd.records import Where, strict
from seismograd.stats.plain import plain

LIMIT = 1000
"""So many of the last errors are kept."""
_LETTERS = 8_000
"""So many of a traceback are kept: its beginning and its end."""
_TYPES = 256
_MARK = "_seismograd_records"
"""The attribute of an exception that knows its records, by the id of the tracker."""


class ErrorSeverity(str, Enum):
    """How bad an error is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    def __str__(self) -> str:
        return self.value


class ErrorCategory(str, Enum):
    """What an error is about."""

    MODEL = "model"
    DATA = "data"
    MEMORY = "memory"
    TRAINING = "training"
    NUMERICS = "numerics"
    DEVICE = "device"
    IO = "io"
    SYSTEM = "system"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


_WORDS = {
    ErrorCategory.MEMORY: ("out of memory", "can't allocate memory", "cannot allocate memory"),
    ErrorCategory.DATA: ("dataloader worker", "each element in list of batch", "default_collate", "stack expects each"),
    ErrorCategory.DEVICE: ("cuda error", "device-side assert", "expected all tensors to be on the same device", "nccl"),
    ErrorCategory.NUMERICS: ("nan", "inf", "not finite", "non-finite", "overflow", "singular", "division by zero"),
    ErrorCategory.MODEL: ("shape", "size mismatch", "dtype", "expected input", "the size of tensor", "state_dict"),
}


def category_of(error: BaseException | str) -> ErrorCategory:
    """What an error is likely about, by its type and its words."""
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return ErrorCategory.MEMORY
    if isinstance(error, ArithmeticError):
        return ErrorCategory.NUMERICS
    if isinstance(error, (OSError, EOFError)):
        return ErrorCategory.IO
    text = _text(error).lower()
    words = f" {''.join(letter if letter.isalnum() else ' ' for letter in text)} "
    for category, phrases in _WORDS.items():
        if any(phrase in text if len(phrase) > 3 else f" {phrase} " in words for phrase in phrases):
            return category
    return ErrorCategory.OTHER


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An error that was tracked, as text: it holds no frame and no tensor."""

    message: str
    type: str
    severity: ErrorSeverity
    category: ErrorCategory
    context: Mapping[str, Any] = field(default_factory=dict)
    timestamp: str = ""
    """When, in UTC, as in ISO 8601."""
    traceback: str = ""
    where: Where = field(default_factory=Where)
    """The deepest line of the user's own code."""

    def to_dict(self) -> dict[str, Any]:
        """The record as strict JSON."""
        told: dict[str, Any] = strict({part.name: getattr(self, part.name) for part in fields(self)})
        return {**told, "where": self.where.to_dict()}

    def __str__(self) -> str:
        place = f" at {written(self.where.file, self.where.line)}" if self.where.file else ""
        return f"{self.type}: {self.message} ({self.severity} in {self.category}{place})"


class ErrorTracker:
    """Keeps the last errors, counts all of them, and tells each to `sink`. Threads may share it."""

    def __init__(self, sink: Any = None, *, limit: int = LIMIT) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"limit is {limit!r}: it takes how many errors are kept, 1 or more")
        self.errors: deque[ErrorRecord] = deque(maxlen=limit)
        self._tell = _teller(sink)
        self._sink_failed = False
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        """Forgets all errors and begins to count anew."""
        with self._lock:
            self.errors.clear()
            self._total = 0
            self._counts: dict[str, Counter[str]] = {"severity": Counter(), "category": Counter(), "type": Counter()}

    def track_error(
        self,
        error: BaseException | str,
        severity: ErrorSeverity | str = ErrorSeverity.ERROR,
        category: ErrorCategory | str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> ErrorRecord:
        """Tracks an exception, or a message where nothing was raised. Without a category it is guessed.

        An exception that is tracked again, further up, has one record still: both contexts, the graver severity.
        """
        severity = _member(ErrorSeverity, severity, "severity")
        if context is not None and not isinstance(context, Mapping):
            raise TypeError(f"context is {context!r}, not a mapping: write context={{'operation': 'training_step'}}")
        given = None if category is None else _member(ErrorCategory, category, "category")
        if not isinstance(error, (BaseException, str)):
            raise TypeError(f"error is {error!r}: it takes an exception or a message")
        record = _record(error, severity, given or category_of(error), plain(dict(context or {})))
        with self._lock:
            earlier = self._taken_out(error)
            if earlier is not None:
                record = replace(
                    record,
                    severity=max(earlier.severity, severity, key=list(ErrorSeverity).index),
                    category=given or earlier.category,
                    context={**earlier.context, **record.context},
                )
                self._count(earlier, -1)
            self.errors.append(record)
            self._count(record, 1)
            self._mark(error, record)
        if earlier is None:
            self._told(record)
        return record

    @property
    def total(self) -> int:
        """How many errors there were, those that are no longer kept with them."""
        return self._total

    def summary(self) -> dict[str, Any]:
        """How many errors there were, by severity, category and type, and the last, as strict JSON."""
        with self._lock:
            counts = {f"by_{what}": dict(counter.most_common()) for what, counter in self._counts.items()}
            last = self.errors[-1].to_dict() if self.errors else None
            return {"total": self._total, "kept": len(self.errors), **counts, "last": last}

    def _count(self, record: ErrorRecord, by: int) -> None:
        self._total += by
        for what, counter in self._counts.items():
            name = str(getattr(record, what))
            if name not in counter and len(counter) >= _TYPES:  # types made at run time
                name = "other"
            counter[name] += by
            if counter[name] <= 0:
                del counter[name]

    def _taken_out(self, error: BaseException | str) -> ErrorRecord | None:
        """The record of this very exception, if it was tracked before."""
        known: ErrorRecord | None = getattr(error, "__dict__", {}).get(_MARK, {}).get(id(self))
        for at, record in enumerate(self.errors):
            if record is known:
                del self.errors[at]
                return known
        return None

    def _mark(self, error: BaseException | str, record: ErrorRecord) -> None:
        with suppress(AttributeError, TypeError):
            vars(error).setdefault(_MARK, {})[id(self)] = record

    def _told(self, record: ErrorRecord) -> None:
        try:
            self._tell(record)
        except Exception as failure:
            if not self._sink_failed:
                self._sink_failed = True
                complain(f"seismograd: errors are tracked, but not told ({type(failure).__name__}: {failure})")


class ErrorHandlingDebuggingSystem:
    """Tracks the errors of a training.

        system = ErrorHandlingDebuggingSystem(create_training_logger({"log_dir": "logs"}))
        with system.tracking("training_step", epoch=3):
            step()  # what it raises is tracked, and raised

    `logger` is told of each error: a training logger, a `logging.Logger`, an object with `log_error`, or a function of
    an `ErrorRecord`.
    """

    def __init__(self, logger: Any = None, *, limit: int = LIMIT) -> None:
        self.error_tracker = ErrorTracker(logger, limit=limit)

    def tracking(
        self,
        operation: str,
        *,
        severity: ErrorSeverity | str = ErrorSeverity.ERROR,
        category: ErrorCategory | str | None = None,
        **context: Any,
    ) -> Tracking:
        """Tracks what is raised in a `with` block, or in a function that it decorates, and lets it pass on."""
        return Tracking(self.error_tracker, severity, category, {"operation": operation, **context})

    def summary(self) -> dict[str, Any]:
        return self.error_tracker.summary()


Function = TypeVar("Function", bound=Callable[..., Any])


class Tracking:
    """A block, or a function, whose errors are tracked. It may be entered again, and inside itself."""

    def __init__(
        self,
        tracker: ErrorTracker,
        severity: ErrorSeverity | str,
        category: ErrorCategory | str | None,
        context: Mapping[str, Any],
    ) -> None:
        self._tracker, self._context = tracker, context
        self._severity = _member(ErrorSeverity, severity, "severity")
        self._category = None if category is None else _member(ErrorCategory, category, "category")

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception):  # Ctrl-C and `sys.exit` are none
            self._tracker.track_error(error, self._severity, self._category, self._context)

    def __call__(self, function: Function) -> Function:
        tracked: Any
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def tracked(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):

            @wraps(function)
            def tracked(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return (yield from function(*args, **kwargs))

        else:

            @wraps(function)
            def tracked(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

        return tracked  # type: ignore[no-any-return]


Member = TypeVar("Member", ErrorSeverity, ErrorCategory)


def _member(kind: type[Member], given: Member | str, name: str) -> Member:
    try:
        return kind(given.lower() if isinstance(given, str) else given)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        raise ValueError(f"{name} {given!r} is unknown: use one of {known}") from None


def _text(error: BaseException | str) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _record(
    error: BaseException | str, severity: ErrorSeverity, category: ErrorCategory, context: Mapping[str, Any]
) -> ErrorRecord:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    message = plain(_text(error))
    if isinstance(error, str):
        return ErrorRecord(message, "message", severity, category, context, now)
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return ErrorRecord(message, name, severity, category, context, now, plain(_traceback(error)), _place(error))


def _traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # a source file that is broken
        text = "".join(traceback.format_exception_only(error))
    if len(text) <= _LETTERS:
        return text
    first, last = text[: _LETTERS // 4], text[-_LETTERS * 3 // 4 :]
    return f"{first}\n... {len(text) - len(first) - len(last)} letters left out ...\n{last}"


def _place(error: BaseException) -> Where:
    """The deepest line of the user's own code that it came through."""
    place = Where()
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if is_users(name):
            place = Where(file=spot_of(frame).file, line=line, code=linecache.getline(name, line).rstrip("\n") or None)
    return place


_LEVELS = {
    ErrorSeverity.INFO: LogLevel.INFO,
    ErrorSeverity.WARNING: LogLevel.WARNING,
    ErrorSeverity.ERROR: LogLevel.ERROR,
    ErrorSeverity.CRITICAL: LogLevel.CRITICAL,
}


def _teller(sink: Any) -> Callable[[ErrorRecord], object]:
    """A function that tells a record to whatever the user gave."""
    if sink is None:
        return lambda record: None
    if callable(getattr(sink, "log_training_event", None)):
        return lambda record: sink.log_training_event(
            "error", f"{record.type}: {record.message}", level=_LEVELS[record.severity], error=record.to_dict()
        )
    if isinstance(sink, (logging.Logger, logging.LoggerAdapter)):
        return lambda record: sink.log(_LEVELS[record.severity].number, "%s", record, extra={"error": record.to_dict()})
    if callable(getattr(sink, "log_error", None)):
        return lambda record: sink.log_error(str(record))
    if callable(sink):
        return sink  # type: ignore[no-any-return]
    raise TypeError(
        f"logger is {sink!r}: give what create_training_logger returns, a logging.Logger, an object with log_error,"
        " or a function that takes an ErrorRecord"
    )
