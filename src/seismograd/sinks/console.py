"""Shows findings in the terminal, on stderr, the moment they come, and the verdict at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from seismograd.quiet_rich import Console as Terminal
from seismograd.quiet_rich import Text
from seismograd.records import Finding, Reading, Severity
from seismograd.reports.terminal import render_finding, render_verdict


class Console:
    """A sink that prints each fault once, again if it got more severe, and in the end the verdict.

    With a verdict to come, a finding is first shown in brief. A run without warnings ends in silence:
    `verdict=False` leaves the verdict out altogether.
    """

    def __init__(self, console: Terminal | None = None, *, verdict: bool = True) -> None:
        self.console = console or Terminal(stderr=True)
        self.verdict = verdict
        self._shown: dict[tuple[Any, ...], int] = {}
        self._events: Counter[tuple[Any, ...]] = Counter()

    def write_reading(self, reading: Reading) -> None: ...

    def write_finding(self, finding: Finding) -> None:
        self._shown[finding.key] = finding.severity.weight
        self.console.print(render_finding(finding, brief=self.verdict))

    def update_finding(self, finding: Finding) -> None:
        if finding.severity.weight > self._shown.get(finding.key, -1):
            self.write_finding(finding)

    def write_event(self, event: Mapping[str, Any]) -> None:
        """What was done about a fault, in one line; of many alike the 1st, 2nd, 3rd, 4th, 8th, 16th."""
        data = event.get("data") or {}
        kind = (event["event_type"], data.get("action"), data.get("finding"))
        self._events[kind] = times = self._events[kind] + 1
        if times > 3 and times & (times - 1):
            return
        line = Text.assemble(("recovery", "bold magenta"), f": {event['message']}")
        if times > 3:
            line.append(f" ({times} times by now)", "dim")
        self.console.print(line)

    def close(self, report: dict[str, Any]) -> None:
        grave = any(finding["severity"] != Severity.INFO.value for finding in report.get("findings", ()))
        if self.verdict and grave:
            self.console.print()
            self.console.print(render_verdict(report))
