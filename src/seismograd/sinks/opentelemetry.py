"""Sends a run's metrics and findings by OpenTelemetry, over OTLP/HTTP."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from seismograd import __version__
from seismograd.extras import need
from seismograd.masking import without_secrets
from seismograd.records import Finding, Severity, strict
from seismograd.reports.words import describe_place
from seismograd.sinks.knocking import knock
from seismograd.sinks.metric_names import FINDINGS, STATUS, metric_of, status_number
from seismograd.sinks.relay import Point, Relay

_EXPORTERS = "opentelemetry.exporter.otlp.proto.http"
_SEVERITIES = {Severity.INFO: "INFO", Severity.WARNING: "WARN", Severity.CRITICAL: "FATAL"}


class OpenTelemetry(Relay):
    """A sink that sends the last values as metrics, and findings as log events with severity and attributes.

    `endpoint` is the collector's (`http://localhost:4318`), or what `OTEL_EXPORTER_OTLP_ENDPOINT` says. Without either,
    providers that the program has set are used as they are, and left open. Otherwise it has its own, which nobody
    else sees: the global ones are not touched. OpenTelemetry takes no NaN: a value that is not finite is missing from
    its gauge, and counted in `seismograd.run.nonfinite`.
    """

    title: ClassVar[str] = "OpenTelemetry"

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        service_name: str | None = None,
        interval: float = 5.0,
        timeout: float = 5.0,
        rank: int | None = 0,
        report: bool = True,
    ) -> None:
        super().__init__(prefix="", rank=rank, report=report, every=1)
        if endpoint is not None:
            parts = urlsplit(endpoint)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(
                    f"endpoint {without_secrets(endpoint)!r} is no address: give the collector's, such as "
                    "http://localhost:4318"
                )
        self.endpoint, self.headers, self.service_name = endpoint, dict(headers or {}), service_name
        self.interval, self.timeout = interval, timeout
        if self._writes:
            logs = ("opentelemetry.sdk._logs", f"{_EXPORTERS}._log_exporter")
            for module in ("opentelemetry.sdk.metrics", f"{_EXPORTERS}.metric_exporter", *logs):
                need(module, "otel")  # now: at the end of a script, some of them can no longer be imported
        self._metrics: Any = None
        self._logs: Any = None
        self._reader: Any = None
        self._exporter: Any = None
        self._resource: Any = None
        self._logger: Any = None
        self._meter: Any = None
        self._gauges: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        """The last values, by metric and what tells them apart."""
        self._next = 0.0
        self._seen = 0
        self._worst = "healthy"
        self._counted: dict[tuple[Any, ...], Severity] = {}

    # -- the providers -----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Makes the resource: it takes threads, and in a script that is over before the first batch there are none."""
        from opentelemetry.sdk.resources import Resource

        about: dict[str, Any] = {
            "service.instance.id": str(self.run.get("id") or ""),
            "seismograd.run.id": str(self.run.get("id") or ""),
            "seismograd.run.name": str(self.run.get("name") or ""),
            "seismograd.rank": self._rank,
        }
        if self.service_name or not os.environ.get("OTEL_SERVICE_NAME"):
            about["service.name"] = self.service_name or "seismograd"
        self._resource = Resource.create(about)

    def _open(self) -> None:
        if self._meter is None:
            self._set_up()
        if self._exporter is not None:
            knock(str(getattr(self._exporter, "_endpoint", "")))

    def _set_up(self) -> None:
        from opentelemetry import _logs, metrics

        meters, loggers = self._the_programs()
        if meters is None and loggers is None:
            meters, loggers = self._own_ones()
        self._meter = (meters or metrics.NoOpMeterProvider()).get_meter("seismograd", __version__)
        self._logger = (loggers or _logs.NoOpLoggerProvider()).get_logger("seismograd", __version__)
        self._steps = self._counter("seismograd.run.steps", "{step}", "Steps of the run.")
        self._findings_counter = self._counter(_dotted(FINDINGS[0]), "{finding}", "Findings of the run.")
        self._nonfinite = self._counter(
            "seismograd.run.nonfinite", "{reading}", "Readings whose value was NaN or infinite, which no gauge can be."
        )
        self._status = self._gauge(_dotted(STATUS[0]), STATUS[1])
        self._status[()] = 0

    def _the_programs(self) -> tuple[Any, Any]:
        """The providers that the program has set, if it is they that are to be used."""
        if self.endpoint is not None or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
            return None, None
        from opentelemetry import _logs, metrics
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk.metrics import MeterProvider

        meters, loggers = metrics.get_meter_provider(), _logs.get_logger_provider()
        return (
            meters if isinstance(meters, MeterProvider) else None,
            loggers if isinstance(loggers, LoggerProvider) else None,
        )

    def _own_ones(self) -> tuple[Any, Any]:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        more: dict[str, Any] = {"timeout": self.timeout, "headers": self.headers or None}
        at = "" if self.endpoint is None else self.endpoint.rstrip("/")
        self._exporter = OTLPMetricExporter(endpoint=f"{at}/v1/metrics" if at else None, **more)
        self._reader = InMemoryMetricReader()
        self._metrics = MeterProvider([self._reader], resource=self._resource, shutdown_on_exit=False)
        self._sent = _Sent(OTLPLogExporter(endpoint=f"{at}/v1/logs" if at else None, **more))
        self._logs = LoggerProvider(resource=self._resource, shutdown_on_exit=False)
        self._logs.add_log_record_processor(SimpleLogRecordProcessor(cast(Any, self._sent)))
        self._silence = _Silence()
        return self._metrics, self._logs

    # -- what is sent ------------------------------------------------------------------------------------------------

    def _send(self, points: Sequence[Point]) -> None:
        newest: dict[str, float] = {}
        bad: Counter[str] = Counter()
        for point in points:
            newest.update(point.scalars)
            bad.update(name for name, value in point.scalars.items() if not math.isfinite(value))
        for scalar, value in newest.items():
            metric = metric_of(scalar)
            labels = tuple((name, text) for name, text in metric.labels.items() if text)
            self._gauge(_dotted(metric.name), metric.told)[labels] = value
        for scalar, times in bad.items():
            self._nonfinite.add(times, self._labels({"value": scalar}))
        last = max(point.step for point in points) + 1
        if last > self._seen:
            self._steps.add(last - self._seen, self._labels())
            self._seen = last

    def _send_finding(self, finding: Finding) -> None:
        if finding.key not in self._counted:
            labels = self._labels({"id": finding.id, "severity": finding.severity.value})
            self._findings_counter.add(1, labels)
        self._counted[finding.key] = finding.severity
        worst = max(self._counted.values(), key=lambda severity: severity.weight).value
        self._status[()] = status_number("healthy" if worst == "info" else worst)
        self._next = 0.0  # the metrics go along with it
        told = finding.to_dict()
        place = {f"code.{name}": value for name, value in _place(told["where"]) if value is not None}
        attributes = {
            "seismograd.finding.id": finding.id,
            "seismograd.finding.severity": finding.severity.value,
            "seismograd.finding.step": finding.step,
            "seismograd.finding.place": describe_place(finding),
            "seismograd.finding.recommendations": list(finding.recommendations),
            **{f"seismograd.evidence.{name}": _plain(value) for name, value in finding.evidence.items()},
            **place,
        }
        self._emit("seismograd.finding", finding.message, _SEVERITIES[finding.severity], attributes)

    def _send_event(self, event: Mapping[str, Any]) -> None:
        attributes = {f"seismograd.{name}": _plain(value) for name, value in event.items() if name != "message"}
        self._emit("seismograd.event", str(event.get("message")), "WARN", attributes)

    def _settle(self) -> None:
        if self._reader is not None and time.monotonic() >= self._next:
            self._export()
            self._next = time.monotonic() + self.interval

    def _finish(self, report: dict[str, Any]) -> None:
        run = report.get("run") or {}
        status = str(run.get("status"))
        self._status[()] = status_number(status)
        if self.report:
            attributes = {"seismograd.status": status, "seismograd.steps": int(run.get("steps") or 0)}
            text = f"run {status} after {run.get('steps')} steps, {len(report.get('findings') or ())} findings"
            bad = {"healthy": "INFO", "warning": "WARN"}.get(status, "ERROR")
            self._emit("seismograd.end", text, bad, attributes)
        if self._reader is None:
            for provider in self._the_programs():
                if provider is not None:
                    provider.force_flush(int(self.timeout * 1000))
            for values in self._gauges.values():  # its gauges stay, with nothing to tell
                values.clear()
            return
        self._export()
        self._exporter.shutdown()
        self._metrics.shutdown()
        self._logs.shutdown()
        self._silence.leave()

    def _export(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        data = self._reader.get_metrics_data()
        if data is None:
            return
        if self._exporter.export(data) is not MetricExportResult.SUCCESS:
            raise ConnectionError(f"no collector took the metrics at {without_secrets(self._exporter._endpoint)}")

    def _emit(self, name: str, text: str, severity: str, attributes: Mapping[str, Any]) -> None:
        from opentelemetry._logs import LogRecord, SeverityNumber

        now = time.time_ns()
        record = LogRecord(
            timestamp=now,
            observed_timestamp=now,
            severity_number=SeverityNumber[severity],
            severity_text=severity,
            body=text,
            attributes={**attributes, **self._labels()},
            event_name=name,
        )
        self._logger.emit(record)
        if self._reader is not None and not self._sent.taken:
            raise ConnectionError("no collector took the log event")

    def _gauge(self, name: str, told: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The values of a gauge. It is asked for them at each export, so that one that is not finite is not there.

        The SDK ignores such a value, and a gauge that was set would go on telling the last good one.
        """
        if name not in self._gauges:
            from opentelemetry.metrics import Observation

            values = self._gauges[name] = {}

            def observed(options: Any) -> list[Any]:
                return [
                    Observation(value, self._labels(dict(labels)))
                    for labels, value in list(values.items())
                    if math.isfinite(value)
                ]

            self._meter.create_observable_gauge(name, callbacks=[observed], description=told)
        return self._gauges[name]

    def _counter(self, name: str, unit: str, told: str) -> Any:
        return self._meter.create_counter(name, unit=unit, description=told)

    def _labels(self, more: Mapping[str, str] | None = None) -> dict[str, Any]:
        return {"run": str(self.run.get("id") or ""), "rank": self._rank, **(more or {})}


class _Sent:
    """An exporter of log events that knows whether the last ones were taken."""

    def __init__(self, exporter: Any) -> None:
        self._exporter, self.taken = exporter, True

    def export(self, batch: Any) -> Any:
        result = self._exporter.export(batch)
        self.taken = getattr(result, "name", "") == "SUCCESS"
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class _Silence(logging.Filter):
    """Holds back what the exporters log on the thread that it was made on: it is said once, in our own words."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        names = (f"{_EXPORTERS}.metric_exporter", f"{_EXPORTERS}._log_exporter", "opentelemetry.sdk._logs._internal")
        self._loggers = [logging.getLogger(name) for name in names]
        for logger in self._loggers:
            logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread

    def leave(self) -> None:
        for logger in self._loggers:
            logger.removeFilter(self)


def _dotted(name: str) -> str:
    """`run_gradient_norm` is `seismograd.run.gradient_norm`."""
    return "seismograd." + name.replace("run_", "run.", 1)


def _place(where: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The place in the words of OpenTelemetry's conventions, as far as it has them."""
    yield "file.path", where["file"]
    yield "line.number", where["line"]
    for name in ("module", "parameter", "op", "phase"):
        yield name, where[name]


def _plain(value: Any) -> Any:
    """A value that an attribute can have."""
    value = strict(value)
    return value if isinstance(value, (str, bool, int, float)) else str(value)
