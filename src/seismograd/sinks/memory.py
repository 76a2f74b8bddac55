"""Keeps what was read and found where a notebook or a test can look at it."""

from __future__ import annotations

from collections import deque
from typing import Any

from seismograd.records import Finding, Reading


class Memory:
    """A sink that keeps the last `limit` readings and findings, and the report once the run is over."""

    def __init__(self, limit: int = 1000) -> None:
        if limit < 1:
            raise ValueError(f"limit {limit!r} keeps nothing: give 1 or more")
        self.limit = limit
        self.readings: deque[Reading] = deque(maxlen=limit)
        self.report: dict[str, Any] | None = None
        self._findings: dict[tuple[Any, ...], Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        """Each fault as it was last told, in the order they came."""
        return list(self._findings.values())

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of one scalar, ready to be plotted."""
        kept = [reading for reading in self.readings if name in reading.scalars]
        return [reading.step for reading in kept], [reading.scalars[name] for reading in kept]

    def write_reading(self, reading: Reading) -> None:
        self.readings.append(reading)

    def write_finding(self, finding: Finding) -> None:
        self._findings[finding.key] = finding
        while len(self._findings) > self.limit:
            del self._findings[next(iter(self._findings))]

    def update_finding(self, finding: Finding) -> None:
        self.write_finding(finding)

    def close(self, report: dict[str, Any]) -> None:
        self.report = report
