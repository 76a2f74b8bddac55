"""Calls a user's function with each new finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seismograd.records import Finding, Reading


class Callback:
    """A sink around a function: `function(finding)` is called once for each fault, when it is first seen."""

    def __init__(self, function: Callable[[Finding], Any]) -> None:
        self.function = function

    def write_reading(self, reading: Reading) -> None: ...

    def write_finding(self, finding: Finding) -> None:
        self.function(finding)

    def update_finding(self, finding: Finding) -> None: ...

    def close(self, report: dict[str, Any]) -> None: ...
