"""A run that draws itself in one output of a notebook: its loss as it falls, and what is found."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from seismograd.amounts import number
from seismograd.notebooks import Output, drawings
from seismograd.records import Finding, Reading
from seismograd.reports.stories import stories
from seismograd.reports.words import describe_place, ended_by, many
from seismograd.sinks.curve import Curve

_EVERY = 0.5
_SHARE = 200
"""A drawing is waited for so many times as long as it took: it takes half a percent of the time at most."""
_LINES, _POINTS = 4, 128


class LiveCell:
    """A sink that shows one output, drawn again in its place; its last state stays in the notebook."""

    def __init__(self) -> None:
        self._output = Output()
        self._curves: dict[str, Curve] = {}
        self._findings: dict[tuple[Any, ...], Finding] = {}
        self._events: list[str] = []
        self._last: dict[str, float] = {}
        self._name, self._steps, self._due = "run", 0, 0.0
        self._behind = False
        """Whether there is more than what is drawn."""
        drawings.add(self)

    def begin(self, run: Mapping[str, Any], *_: Any) -> None:
        self._name = str(run.get("name") or "run")

    def write_reading(self, reading: Reading) -> None:
        self._behind = True
        self._steps = max(self._steps, reading.step + 1)
        for name, value in reading.scalars.items():
            if name.partition("/")[0] in ("loss", "val_loss"):
                if name not in self._curves and len(self._curves) == _LINES:
                    continue
                self._curves.setdefault(name, Curve(_POINTS)).add(reading.step, value)
                self._last[name] = value
        if time.monotonic() >= self._due:
            self._draw()

    def write_finding(self, finding: Finding) -> None:
        self._behind = True
        self._findings[finding.key] = finding
        self._due = min(self._due, time.monotonic() + 0.1)

    def update_finding(self, finding: Finding) -> None:
        self._findings[finding.key] = finding

    def write_event(self, event: Mapping[str, Any]) -> None:
        """What was done about a fault; the newest are shown."""
        self._events = [*self._events[-2:], str(event["message"])]

    def flush(self) -> None:
        """Draws what is not drawn yet."""
        if self._behind:
            self._draw()

    def close(self, report: dict[str, Any]) -> None:
        drawings.discard(self)
        if self._steps or self._findings:
            self._draw(report)

    def _draw(self, report: Mapping[str, Any] | None = None) -> None:
        from seismograd.judge import ranked, status_of
        from seismograd.reports.page.cell import card, loss_figure, summary_of
        from seismograd.reports.page.curves import line_through
        from seismograd.reports.page.findings import label_of
        from seismograd.reports.page.markup import tag

        began = time.monotonic()
        self._behind = False
        findings = ranked(self._findings.values())
        run = {} if report is None else report["run"]
        status = str(run.get("status") or status_of(findings))
        title = summary_of(findings)
        steps = run.get("steps", self._steps)  # a reading of facts alone is no step
        facts = [self._name, many(steps, "step")]
        facts += [f"{label_of(name)} {number(value)}" for name, value in self._last.items()]
        facts += ["running"] if report is None else ended_by(run)
        lines = [line_through(label_of(name), *curve.measured(_POINTS)) for name, curve in self._curves.items()]
        notes = [tag("p", f"recovery: {text}", cls="place") for text in self._events]
        told = stories(findings)
        figure = loss_figure(lines, told)
        html = card(status, status, title, facts, figure=figure, told=told, notes=notes)
        words = [f"seismograd: {status}, {title}; {', '.join(facts)}"]
        words += [f"{each.finding.id}: {each.finding.message} ({describe_place(each.finding)})" for each in told[:5]]
        self._output.show(html, "\n".join(words))
        now = time.monotonic()
        self._due = now + max(_EVERY, _SHARE * (now - began))
