"""Metrics and findings reach a collector that speaks OTLP; one that is down holds nobody up."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider

from seismograd.records import Reading
from seismograd.sinks import OpenTelemetry
from seismograd.sinks import relay as module

from .collector import Collector, attributes, collecting
from .trainings import BAD, STEPS, train


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def test_a_sick_run_sends_its_findings_as_events_and_its_nan_as_a_metric(collector: Collector) -> None:
    watch = train(OpenTelemetry(collector.url), sick=True, store=False)
    assert collector.value("seismograd.run.nonfinite", value="loss") == STEPS - BAD, "no metric can be NaN"
    assert not any(name == "seismograd.run.loss" for name in collector.newest()), "the last good one is not told again"
    assert collector.value("seismograd.run.learning_rate", group="0") == 0.05
    assert collector.value("seismograd.run.steps") == STEPS
    assert collector.value("seismograd.run.status") == 2
    assert collector.value("seismograd.run.findings", id="nonfinite-loss", severity="critical") == 1
    record = collector.records("seismograd.finding")[0]
    told = attributes(record)
    assert (record.severity_text, told["seismograd.finding.id"]) == ("FATAL", "nonfinite-loss")
    assert "The loss is NaN at step 7" in record.body.string_value
    assert told["code.file.path"].endswith("trainings.py")
    assert int(told["code.line.number"]) > 0
    assert told["seismograd.finding.step"] == "7"
    assert [attributes(each)["seismograd.finding.id"] for each in collector.records("seismograd.finding")] == [
        finding.id for finding in watch.findings
    ], "each is told once"
    (end,) = collector.records("seismograd.end")
    assert (end.severity_text, attributes(end)["seismograd.status"]) == ("ERROR", "critical")
    resource = collector.resource()
    assert (resource["service.name"], resource["seismograd.rank"]) == ("seismograd", "0")
    assert resource["seismograd.run.id"] == watch.id


def test_a_healthy_run_sends_no_finding(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "trainer")
    train(OpenTelemetry(headers={"x-team": "vision"}), sick=False, store=False)
    assert collector.records("seismograd.finding") == []
    assert collector.value("seismograd.run.status") == 0
    assert 0 < collector.value("seismograd.run.loss") < 10
    (end,) = collector.records("seismograd.end")
    assert end.severity_text == "INFO"
    assert collector.resource()["service.name"] == "trainer"
    assert all(headers["x-team"] == "vision" for headers in collector.headers)


def test_the_global_providers_stay_as_they_are(collector: Collector) -> None:
    before = metrics.get_meter_provider()
    train(OpenTelemetry(collector.url), sick=False, store=False)
    assert metrics.get_meter_provider() is before
    assert not isinstance(before, MeterProvider)


def test_providers_of_the_program_are_used_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    sink = OpenTelemetry()
    seen: set[str] = set()

    def look(step: int, loss: float) -> None:
        if step == BAD - 1:
            assert sink.flush()
            data = reader.get_metrics_data()
            assert data is not None
            seen.update(m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics)

    train(sink, sick=True, store=False, each=look)
    assert {"seismograd.run.loss", "seismograd.run.status", "seismograd.run.learning_rate"} <= seen
    data = reader.get_metrics_data()
    assert data is not None, "it was not shut down"
    left = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert "seismograd.run.findings" in left
    assert "seismograd.run.status" not in left
    provider.shutdown()


def test_a_collector_that_is_down_is_said_once_and_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LITTLE_PATIENCE", 0.5)
    monkeypatch.setattr(module, "PACE", 0.01)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told: list[str] = []
    sink = OpenTelemetry(f"http://127.0.0.1:{port}", timeout=0.3)
    sink.begin({"id": "r", "name": "n"}, lambda *_: None, told.append)
    with caplog.at_level(logging.DEBUG, "opentelemetry"):
        sink.write_reading(Reading(0, {"loss": 1.0}))
        for _ in range(200):
            if told:
                break
            threading.Event().wait(0.05)
        sink.write_reading(Reading(1, {"loss": 1.0}))
        sink.close({"run": {"status": "healthy", "steps": 2}})
    assert len(told) == 2
    assert "OpenTelemetry cannot be written to at present, training goes on" in told[0]
    assert "OpenTelemetry does not have" in told[1]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("wrong", ["localhost:4318", "ftp://x", ""])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"is no address: give the collector's, such as http://localhost:4318"):
        OpenTelemetry(wrong)
