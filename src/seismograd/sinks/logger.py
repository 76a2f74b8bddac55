"""Hands findings to Python's `logging`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seismograd.records import Finding, Reading, Severity, strict
from seismograd.reports.words import describe_place

if TYPE_CHECKING:
    LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    LoggerAdapter = logging.LoggerAdapter

LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.CRITICAL: logging.CRITICAL}

logging.getLogger("seismograd").addHandler(logging.NullHandler())


class Logging:
    """A sink that logs each fault once, again if it got more severe; the record's `finding` holds all of it.

    The default logger is `seismograd`, which says nothing until the program sets `logging` up.
    """

    def __init__(self, logger: logging.Logger | LoggerAdapter | None = None) -> None:
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

    def close(self, report: dict[str, Any]) -> None:
        run = report.get("run", {})
        self.logger.info("run %s after %s steps", run.get("status"), run.get("steps"))
