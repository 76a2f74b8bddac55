"""Shows findings in the terminal, on stderr, the moment they come, and the verdict at the end; in a notebook, live."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seismograd import endings
from seismograd.quiet_rich import Console as Terminal
from seismograd.quiet_rich import Text
from seismograd.records import Finding, Reading, Severity
from seismograd.reports.terminal import render_finding, render_verdict
from seismograd.sinks.logger import LEVELS, Logging
from seismograd.sinks.voice import Leader, Voice

if TYPE_CHECKING:
    from seismograd.sinks.live_cell import LiveCell


class Console:
    """A sink that prints each fault once, again if it got more severe, and in the end the verdict.

    With a verdict to come, a finding is first shown in brief. A run without warnings ends in silence:
    `verdict=False` leaves the verdict out altogether, and `seismograd run` gives it itself, once, for all watches of
    the script. Beside a `Logging` whose lines appear on the same terminal it does not tell a finding a second time,
    and only gives the verdict. In a notebook, unless it is given a console, it draws the run in one output of the cell
    instead. Of several ranks the first speaks; another tells, in brief, what the first will not.
    """

    def __init__(self, console: Terminal | None = None, *, verdict: bool = True) -> None:
        self._cell = _live_cell() if console is None and verdict else None
        self.console = console or Terminal(stderr=True)
        self._on_stderr = console is None
        self.verdict = verdict
        self.beside: Logging | None = None
        self._voice = Voice()
        self._events: Counter[tuple[Any, ...]] = Counter()

    @property
    def leader_tells(self) -> Leader | None:
        """Whether the first rank will tell a finding of this one; the watch gives it."""
        return self._voice.leader_tells

    @leader_tells.setter
    def leader_tells(self, leader_tells: Leader | None) -> None:
        self._voice.leader_tells = leader_tells

    def begin(self, run: Mapping[str, Any], *more: Any) -> None:
        """Is told which run it shows."""
        if self._cell is not None:
            self._cell.begin(run, *more)

    def write_reading(self, reading: Reading) -> None:
        if self._cell is not None:
            self._cell.write_reading(reading)

    def write_finding(self, finding: Finding) -> None:
        if self._cell is not None:
            self._cell.write_finding(finding)
            return
        voice = self._voice
        if not voice.tells(finding):
            return
        if self.beside is None or not self.verdict or not self.beside.is_seen(LEVELS[finding.severity], self._file):
            brief = self.verdict or not voice.leads
            self.console.print(render_finding(finding, brief=brief, speaker=voice.speaker))

    def update_finding(self, finding: Finding) -> None:
        if self._cell is not None:
            self._cell.update_finding(finding)
        else:
            self.write_finding(finding)

    def hear_finding(self, finding: Finding) -> None:
        """Takes what another rank has found, which it leaves to the first one to tell."""
        self.write_finding(finding)

    def write_event(self, event: Mapping[str, Any]) -> None:
        """What was done about a fault, in one line; of many alike the 1st, 2nd, 3rd, 4th, 8th, 16th."""
        data = event.get("data") or {}
        kind = (event["event_type"], data.get("action"), data.get("finding"))
        self._events[kind] = times = self._events[kind] + 1
        if times > 3 and times & (times - 1):
            return
        if self._cell is not None:
            self._cell.write_event(event)
            return
        if not self._voice.leads:  # all ranks do the same
            return
        if self.beside is not None and self.beside.is_seen(logging.WARNING, self._file):
            return
        line = Text.assemble(("recovery", "bold magenta"), f": {event['message']}")
        if times > 3:
            line.append(f" ({times} times by now)", "dim")
        self.console.print(line)

    @property
    def _file(self) -> Any:
        return getattr(self.console, "file", None)

    def flush(self) -> None:
        if self._cell is not None:
            self._cell.flush()

    def close(self, report: dict[str, Any]) -> None:
        if self._cell is not None:
            self._cell.close(report)
            return
        grave = any(finding["severity"] != Severity.INFO.value for finding in report.get("findings", ()))
        told_later = self._on_stderr and endings.supervised  # by `seismograd run`, with the script's other watches
        if self.verdict and grave and self._voice.leads and not told_later:
            self.console.print()
            self.console.print(render_verdict(report))


def _live_cell() -> LiveCell | None:
    from seismograd import notebooks

    if notebooks.shell() is None:
        return None
    from seismograd.sinks.live_cell import LiveCell

    return LiveCell()
