"""Writes a run to Weights & Biases, online or offline."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from seismograd.extras import need
from seismograd.records import Finding, Reading, Severity
from seismograd.reports.words import was_stopped
from seismograd.sinks.relay import PREFIX, Point, Relay, give_up
from seismograd.sinks.wording import files_of, text_of, title_of

_LEVELS = {Severity.INFO: "INFO", Severity.WARNING: "WARN", Severity.CRITICAL: "ERROR"}

_STOPPED = 255
"""W&B's own exit code for a run that was stopped by Ctrl-C."""
_AT_LEAST = 200
"""So many readings go into your run in any case; then as many as the share of the time allows."""
_SHARE = 0.02


class WandB(Relay):
    """A sink that writes metrics, findings as alerts and in the summary, and the report as an artifact to W&B.

    It writes to the active run and leaves it open; where there is none it makes its own, in `project`, and ends it.
    In your run its values join the row that you log next, so that no step of yours moves: they come as often as yours.
    If you finish it before the watch is closed, it gets the report as it is then.
    Values that are not finite are kept as the words `NaN`, `Infinity` and `-Infinity`.
    """

    title: ClassVar[str] = "W&B"

    def __init__(
        self,
        project: str | None = None,
        *,
        entity: str | None = None,
        run: Any = None,
        name: str | None = None,
        mode: str | None = None,
        dir: str | os.PathLike[str] | None = None,  # noqa: A002 (as in wandb.init)
        prefix: str = PREFIX,
        every: int | None = None,
        rank: int | None = 0,
        report: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, every=every, rank=rank, report=report)
        self._wandb: Any = None
        if self._writes:
            self._wandb = need("wandb", "wandb")
            self._wandb.setup()  # so that it registers for the exit before the watch does, which is then closed first
        self._settings = {
            "project": project or os.environ.get("WANDB_PROJECT") or "seismograd",
            "entity": entity,
            "name": name,
            "mode": mode,
            "dir": None if dir is None else os.fspath(dir),
        }
        self._run: Any = run
        self._own = self._let_go = False
        self._finishing: Any = None
        self._next = 0.0

    def write_reading(self, reading: Reading) -> None:
        if self._let_go:
            self._let_go = False
            self._said("W&B's run was finished before the watch was closed: what came after is not there", always=True)
        super().write_reading(reading)

    def close(self, report: dict[str, Any]) -> None:
        super().close(report)
        self._leave()

    def _take(self, reading: Reading, at: float) -> None:
        """Into your run it goes at once, or it would miss the row that it belongs to."""
        if self._run is None or self._own or self._run_is_over():
            super()._take(reading, at)
            return
        began = time.perf_counter()
        if self.written >= _AT_LEAST and began < self._next:
            self.thinned += 1
            return
        try:
            self._send([self._point(reading, at)])
        except Exception:
            super()._take(reading, at)  # the thread tries again, and says what is wrong
            return
        self.written += 1
        ended = time.perf_counter()
        self._next = ended + (ended - began) / _SHARE

    def _prepare(self) -> None:
        if self._run is None:
            self._run = self._wandb.run
        if self._run is not None:
            self._define()
            self._finish_first()

    def _finish_first(self) -> None:
        """Has your run tell of its end, after which it takes nothing: a script that is not ours ends it by itself."""
        finish = getattr(self._run, "_finish", None)
        if finish is None:
            return

        def finishing(*args: Any, **more: Any) -> Any:
            self._leave()
            with suppress(Exception):
                if self.so_far is not None and not self._ending:
                    self._let_go = True
                    super(WandB, self).close(self.so_far())
            return finish(*args, **more)

        self._run._finish = self._finishing = finishing

    def _leave(self) -> None:
        """Takes what was put into your run out of it again."""
        if self._finishing is not None and vars(self._run).get("_finish") is self._finishing:
            del self._run._finish
        self._finishing = None

    def _define(self) -> None:
        self._run.define_metric(f"{self.prefix}*", step_metric=f"{self.prefix}step")

    def _open(self) -> None:
        if self._run is not None:
            return
        run = self._wandb.init(
            **{key: value for key, value in self._settings.items() if value is not None},
            reinit="create_new",
            config={"seismograd_run": self.run.get("id"), "name": self.run.get("name")},
            settings=self._wandb.Settings(console="off", x_disable_stats=True),
        )
        self._own, self._run = True, run
        self._define()

    def _send(self, points: Sequence[Point]) -> None:
        self._alive()
        for point in points:
            row = {**point.scalars, f"{self.prefix}step": point.step}
            self._run.log(row, step=point.step if self._own else None, commit=None if self._own else False)

    def _send_finding(self, finding: Finding) -> None:
        self._alive()
        self._run.summary[f"{self.prefix}finding/{finding.id}"] = f"{title_of(finding)}: {finding.message}"
        level = getattr(self._wandb.AlertLevel, _LEVELS[finding.severity])
        self._run.alert(title_of(finding), text_of(finding), level=level)

    def _send_event(self, event: Mapping[str, Any]) -> None:
        self._alive()
        self._run.alert("recovery", str(event.get("message")), level=self._wandb.AlertLevel.INFO)

    def _finish(self, report: dict[str, Any]) -> None:
        self._alive()
        run = report.get("run") or {}
        self._run.summary[f"{self.prefix}status"] = run.get("status")
        if self.report:
            with tempfile.TemporaryDirectory() as folder:
                for name, text in files_of(report, self.page).items():
                    (Path(folder) / name).write_text(text, encoding="utf-8")
                own = f"seismograd-{self.run.get('id') or self._run.id}"
                self._run.log_artifact(folder, name=own, type="report")
        if self._own:
            self._run.finish(exit_code=1 if run.get("status") == "crashed" else _STOPPED if was_stopped(run) else 0)

    def _alive(self) -> None:
        if self._run_is_over():
            give_up("the run was finished before the watch was closed: close it, or leave its `with`, first")

    def _run_is_over(self) -> bool:
        return bool(getattr(self._run, "_is_finished", False))
