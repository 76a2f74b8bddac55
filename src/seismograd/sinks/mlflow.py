"""Writes a run to MLflow."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from seismograd.extras import need
from seismograd.records import Finding
from seismograd.reports.words import was_stopped
from seismograd.sinks.knocking import knock
from seismograd.sinks.one_at_a_time import one_at_a_time
from seismograd.sinks.relay import PREFIX, Point, Relay
from seismograd.sinks.wording import files_of, markdown_of, title_of

_BATCH = 1000
"""Metrics that MLflow takes in one call."""
_LONGEST_TAG = 500
_REFUSED = re.compile(r"[^\w .:/-]", re.ASCII)


class MLflow(Relay):
    """A sink that writes metrics, findings as tags and text, and the report as an artifact to MLflow.

    It writes to the active run and leaves it open; where there is none it makes its own, in `experiment`, and ends it.
    `tracking_uri` is MLflow's own unless given. An infinite value is the largest float where a database is behind it.
    """

    title: ClassVar[str] = "MLflow"

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        experiment: str | None = None,
        run_id: str | None = None,
        run_name: str | None = None,
        prefix: str = PREFIX,
        every: int | None = None,
        rank: int | None = 0,
        report: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, every=every, rank=rank, report=report)
        self.tracking_uri, self.experiment, self.run_id, self.run_name = tracking_uri, experiment, run_id, run_name
        self._mlflow: Any = need("mlflow", "mlflow") if self._writes else None
        self._client: Any = None
        self._own = False
        self._texts: list[str] = []
        self._names: dict[str, str] = {}

    def _prepare(self) -> None:
        self.tracking_uri = self.tracking_uri or self._mlflow.get_tracking_uri()
        active = self._mlflow.active_run()
        if self.run_id is None and active is not None:
            self.run_id = active.info.run_id
        self.run_id = self.run_id or os.environ.get("MLFLOW_RUN_ID")

    def _open(self) -> None:
        knock(str(self.tracking_uri))
        with one_at_a_time(str(self.tracking_uri)):  # two that make its tables at once leave it broken for good
            self._client = self._mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        if self.run_id is None:
            name = self.run_name or str(self.run.get("name") or "seismograd")
            self.run_id = self._client.create_run(self._experiment(), run_name=name).info.run_id
            self._own = True
        self._tag("run", str(self.run.get("id") or ""))
        self._tag("status", "healthy")

    def _experiment(self) -> str:
        name = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        if name is None:
            return os.environ.get("MLFLOW_EXPERIMENT_ID") or "0"
        known = self._client.get_experiment_by_name(name)
        return str(known.experiment_id if known is not None else self._client.create_experiment(name))

    def _send(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(self._name(name), value, int(point.time * 1000), point.step)
            for point in points
            for name, value in point.scalars.items()
        ]
        for at in range(0, len(metrics), _BATCH):
            self._client.log_batch(self.run_id, metrics=metrics[at : at + _BATCH], synchronous=True)

    def _send_finding(self, finding: Finding) -> None:
        self._tag(f"finding.{finding.id}", f"{title_of(finding)}: {finding.message}")
        worst = max(self._findings.values(), key=lambda each: each.severity.weight).severity
        self._tag("status", "healthy" if worst == "info" else str(worst))
        self._texts.append(markdown_of(finding))
        self._client.log_text(self.run_id, "\n\n---\n\n".join(self._texts) + "\n", "seismograd/findings.md")

    def _send_event(self, event: Mapping[str, Any]) -> None:
        self._tag("recovery", str(event.get("message")))

    def _finish(self, report: dict[str, Any]) -> None:
        run = report.get("run") or {}
        self._tag("status", str(run.get("status")))
        if self.report:
            for name, text in files_of(report, self.page).items():
                self._client.log_text(self.run_id, text, f"seismograd/{name}")
        if self._own:
            ended = "FAILED" if run.get("status") == "crashed" else "KILLED" if was_stopped(run) else "FINISHED"
            self._client.set_terminated(self.run_id, status=ended)

    def _tag(self, name: str, value: str) -> None:
        self._client.set_tag(self.run_id, f"seismograd.{name}", value[:_LONGEST_TAG])

    def _name(self, name: str) -> str:
        """As MLflow takes it: letters, digits, `_`, `-`, `.`, `:`, `/` and spaces."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = _REFUSED.sub("_", name)[:250]
        return known
