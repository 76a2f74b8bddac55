"""Shows findings in the terminal, on stderr, the moment they come, and the verdict at the end."""

from __future__ import annotations

from typing import Any

from seismograd.quiet_rich import Console as Terminal
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

    def write_reading(self, reading: Reading) -> None: ...

    def write_finding(self, finding: Finding) -> None:
        self._shown[finding.key] = finding.severity.weight
        self.console.print(render_finding(finding, brief=self.verdict))

    def update_finding(self, finding: Finding) -> None:
        if finding.severity.weight > self._shown.get(finding.key, -1):
            self.write_finding(finding)

    def close(self, report: dict[str, Any]) -> None:
        grave = any(finding["severity"] != Severity.INFO.value for finding in report.get("findings", ()))
        if self.verdict and grave:
            self.console.print()
            self.console.print(render_verdict(report))
