"""Hands findings to Python's `logging`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seismograd.records import Finding, Reading, Severity, strict
from seismograd.reports.words import describe_place

if TYPE_CHECKING:
    Adapter = logging.LoggerAdapter[logging.Logger]
else:
    Adapter = logging.LoggerAdapter

LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.CRITICAL: logging.CRITICAL}

logging.getLogger("seismograd").addHandler(logging.NullHandler())


class Logging:
    """A sink that logs each fault once, again if it got more severe; the record's `finding` holds all of it.

    The default logger is `seismograd`, which says nothing until the program sets `logging` up.
    """

    def __init__(self, logger: logging.Logger | Adapter | None = None) -> None:
        self.logger = logger or logging.getLogger("seismograd")
        self._logged: dict[tuple[Any, ...], int] = {}

    def write_reading(self, reading: Reading) -> None: ...

    def write_finding(self, finding: Finding) -> None:
        self._logged[finding.key] = finding.severity.weight
        self.logger.log(
            LEVELS[finding.severity],
            "%s: %s (%s)",
            finding.id,
            finding.message,
            describe_place(finding),
            extra={"finding": strict(finding.to_dict())},
        )

    def update_finding(self, finding: Finding) -> None:
        if finding.severity.weight > self._logged.get(finding.key, -1):
            self.write_finding(finding)

    def write_event(self, event: Mapping[str, Any]) -> None:
        self.logger.warning("%s: %s", event["event_type"], event["message"], extra={"event": strict(dict(event))})

    def is_seen(self, level: int, stream: Any) -> bool:
        """Whether a line of that level appears where `stream` is shown: on the same stream, or the same terminal."""
        logger: logging.Logger | None = (
            self.logger.logger if isinstance(self.logger, logging.LoggerAdapter) else self.logger
        )
        if logger is None or not logger.isEnabledFor(level):
            return False
        while logger is not None:
            for handler in logger.handlers:
                if handler.level <= level and _shows(handler, stream):
                    return True
            logger = logger.parent if logger.propagate else None
        return False

    def close(self, report: dict[str, Any]) -> None:
        run = report.get("run", {})
        self.logger.info("run %s after %s steps", run.get("status"), run.get("steps"))


def _shows(handler: logging.Handler, stream: Any) -> bool:
    target = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    if target is None or isinstance(handler, logging.FileHandler):
        return False
    return target is stream or (_is_terminal(target) and _is_terminal(stream))


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # closed
        return False
