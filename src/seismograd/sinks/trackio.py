"""Writes a run to trackio."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from seismograd.extras import need
from seismograd.records import Finding, Severity
from seismograd.sinks.quiet_stdout import aside
from seismograd.sinks.relay import PREFIX, Point, Relay
from seismograd.sinks.wording import files_of, text_of, title_of

_LEVELS = {Severity.INFO: "INFO", Severity.WARNING: "WARN", Severity.CRITICAL: "ERROR"}


class Trackio(Relay):
    """A sink that writes metrics, findings as alerts, and the report as an artifact to trackio.

    It writes to the current run and leaves it open; where there is none it makes its own, in `project`, and ends it.
    Values that are not finite are kept as the words `NaN`, `Infinity` and `-Infinity`.
    """

    title: ClassVar[str] = "trackio"

    def __init__(
        self,
        project: str | None = None,
        *,
        run: Any = None,
        name: str | None = None,
        space_id: str | None = None,
        server_url: str | None = None,
        prefix: str = PREFIX,
        every: int | None = None,
        rank: int | None = 0,
        report: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, every=every, rank=rank, report=report)
        self._trackio: Any = need("trackio", "trackio") if self._writes else None
        self._project, self._run_name = project or "seismograd", name
        self._remote = {
            key: value for key, value in (("space_id", space_id), ("server_url", server_url)) if value is not None
        }
        self._run: Any = run
        self._own = False

    def _prepare(self) -> None:
        if self._run is None:
            from trackio import context_vars

            self._run = context_vars.current_run.get()

    def _open(self) -> None:
        if self._run is not None:
            return
        name = self._run_name or f"{self.run.get('name') or 'run'}-{self.run.get('id') or ''}".rstrip("-")
        with aside():
            self._run = self._trackio.init(
                self._project,
                name=name,
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
                config={"seismograd_run": self.run.get("id")},
                **self._remote,
            )
        self._own = True

    def _send(self, points: Sequence[Point]) -> None:
        for point in points:
            before = getattr(self._run, "_next_step", None)
            self._run.log(point.scalars, step=point.step)
            if not self._own and before is not None and self._run._next_step == max(before, point.step + 1):
                self._run._next_step = before  # the user may let trackio count

    def _send_finding(self, finding: Finding) -> None:
        level = getattr(self._trackio.AlertLevel, _LEVELS[finding.severity])
        with aside(silent=True):  # it prints what the terminal has told
            self._run.alert(title_of(finding), text_of(finding), level=level, step=finding.step)

    def _send_event(self, event: Mapping[str, Any]) -> None:
        with aside(silent=True):  # it prints what the terminal has told
            self._run.alert("recovery", str(event.get("message")), level=self._trackio.AlertLevel.INFO)

    def _finish(self, report: dict[str, Any]) -> None:
        with aside():
            if self.report:
                with tempfile.TemporaryDirectory() as folder:
                    for name, text in files_of(report, self.page).items():
                        (Path(folder) / name).write_text(text, encoding="utf-8")
                    self._run.log_artifact(folder, name=f"seismograd-{self.run.get('id') or 'run'}", type="report")
            if self._own:
                self._run.finish()
