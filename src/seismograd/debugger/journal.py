"""The events of a debugger: kept up to a number, told to the user's logger."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from seismograd.logger import LogLevel
from seismograd.stats.plain import plain

_METHODS = {
    LogLevel.DEBUG: "log_info",
    LogLevel.INFO: "log_info",
    LogLevel.WARNING: "log_warning",
    LogLevel.ERROR: "log_error",
    LogLevel.CRITICAL: "log_error",
}


class Journal:
    """The last events with their times. Counts go on when old events are dropped."""

    def __init__(self, logger: Any = None, kept: int = 1000) -> None:
        if kept < 1:
            raise ValueError(f"history={kept!r} keeps nothing: give how many events to keep, 1000 say")
        self._logger = logging.getLogger("seismograd") if logger is None else _checked(logger)
        self._events: deque[dict[str, Any]] = deque(maxlen=kept)
        self.counts: Counter[str] = Counter()
        """How many events there were of each type, in all."""

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self._events)

    def log(
        self, event_type: str, message: str, data: Mapping[str, Any] | None = None, level: LogLevel = LogLevel.INFO
    ) -> None:
        """Notes an event, and tells the logger, whose errors are its own affair."""
        told = plain(dict(data or {}))
        self._events.append(
            {
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "event_type": event_type,
                "message": message,
                "data": told,
            }
        )
        self.counts[event_type] += 1
        self._tell(event_type, message, told, level)

    def clear(self) -> None:
        self._events.clear()
        self.counts.clear()

    def _tell(self, event_type: str, message: str, data: Any, level: LogLevel) -> None:
        logger = self._logger
        if isinstance(logger, (logging.Logger, logging.LoggerAdapter)):
            logger.log(level.number, "%s: %s", event_type.replace("_", " "), message)
        elif hasattr(logger, "log_training_event"):
            logger.log_training_event(event_type, message, level=level, **data)
        else:
            getattr(logger, _METHODS[level])(f"{event_type.replace('_', ' ')}: {message}")


def _checked(logger: Any) -> Any:
    known = isinstance(logger, (logging.Logger, logging.LoggerAdapter)) or hasattr(logger, "log_training_event")
    if known or all(callable(getattr(logger, method, None)) for method in set(_METHODS.values())):
        return logger
    raise TypeError(
        f"{logger!r} is no logger: give a logging.Logger, what create_training_logger() returns, or an object with"
        " log_info, log_warning and log_error"
    )
