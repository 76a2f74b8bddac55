"""What Prometheus reads over HTTP, by its own parser; the port is this machine's alone, and closed with the run."""

from __future__ import annotations

import math
import socket
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seismograd.records import Finding, Reading, Severity
from seismograd.sinks import Prometheus

from .trainings import STEPS, train


def scrape(sink: Prometheus) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    with urllib.request.urlopen(sink.address, timeout=5) as answer:
        text = answer.read().decode()
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(scraped: Any, metric: str, **labels: str) -> float:
    (found,) = [value for own, value in scraped[f"seismograd_{metric}"].items() if set(labels.items()) <= own]
    return float(found)


def closed(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("sick", [True, False])
def test_a_run_is_read_while_it_goes_on(sick: bool) -> None:
    sink = Prometheus(0)
    seen: list[Any] = []
    watch = train(sink, sick=sick, store=False, each=lambda step, _: seen.append(scrape(sink)) if step == 11 else None)
    (told,) = seen
    assert value(told, "run_steps_total", run=watch.id, name="training") == STEPS
    assert math.isnan(value(told, "run_loss", rank="0")) is sick
    assert value(told, "run_learning_rate", group="0") == 0.05
    assert value(told, "run_step_seconds", phase="step") > 0
    assert value(told, "run_memory_bytes", kind="rss") > 0
    assert value(told, "run_status") == (2 if sick else 0)
    assert value(told, "run_findings", severity="critical") == (len(watch.findings) if sick else 0)
    assert ("seismograd_run_finding" in told) is sick
    assert closed(sink.port), "closed with the run"


def test_it_listens_on_this_machine_alone() -> None:
    sink = Prometheus(0)
    assert sink.address.startswith("http://127.0.0.1:")
    assert sink._server is not None
    assert sink._server._server.server_address[0] == "127.0.0.1"
    sink.close({})


def test_runs_of_a_process_share_a_port_which_the_last_one_closes() -> None:
    first = Prometheus(0)
    second = Prometheus(first.port)
    for name, sink in (("a", first), ("b", second)):
        sink.begin({"id": name, "name": name}, lambda *_: None, lambda _: None)
        sink.write_reading(Reading(4, {"loss/0": 1.0, "loss/1": 2.0, "accuracy": 0.5}))
    told = scrape(first)
    assert value(told, "run_loss", run="b", series="1") == 2.0
    assert value(told, "run_value", run="a", value="accuracy") == 0.5
    first.close({})
    assert {dict(labels)["run"] for labels in scrape(second)["seismograd_run_steps_total"]} == {"b"}
    second.close({})
    assert closed(first.port)


def test_a_finding_that_gets_worse_is_counted_once() -> None:
    sink = Prometheus(0)
    sink.begin({"id": "r", "name": "n"}, lambda *_: None, lambda _: None)
    for severity in (Severity.INFO, Severity.WARNING, Severity.WARNING, Severity.CRITICAL):
        sink.update_finding(Finding("loss-spike", severity, 1, "a jump"))
    told = scrape(sink)
    assert [value(told, "run_findings", severity=each) for each in ("info", "warning", "critical")] == [0, 0, 1]
    sink.close({})


def test_a_port_that_is_taken_is_said_with_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port} .*give another port, or 0 for one that is free"):
            Prometheus(port)


@pytest.mark.parametrize("wrong", [-1, 65536, True, "9464"])
def test_what_is_no_port_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"port .* is none"):
        Prometheus(wrong)
