"""A collector of OpenTelemetry in the test's process: takes OTLP over HTTP, and understands it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


class Collector:
    """What came, as the protocol's own messages."""

    def __init__(self) -> None:
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.code = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.headers.append(dict(self.headers))
                answer: Any = b""
                if outer.code == 200 and self.path == "/v1/metrics":
                    outer.metrics.append(ExportMetricsServiceRequest.FromString(body))
                    answer = ExportMetricsServiceResponse().SerializeToString()
                elif outer.code == 200 and self.path == "/v1/logs":
                    outer.logs.append(ExportLogsServiceRequest.FromString(body))
                    answer = ExportLogsServiceResponse().SerializeToString()
                self.send_response(outer.code if self.path in ("/v1/metrics", "/v1/logs") else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def values(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The last value of each metric, by name and attributes."""
        found = {}
        for request in self.metrics:
            for metric in _metrics(request):
                data = metric.gauge if metric.HasField("gauge") else metric.sum
                for point in data.data_points:
                    labels = frozenset((each.key, _text(each.value)) for each in point.attributes)
                    number = point.as_double if point.HasField("as_double") else float(point.as_int)
                    found[metric.name, labels] = number
        return found

    def newest(self) -> list[str]:
        """The names in the last export."""
        return [metric.name for metric in _metrics(self.metrics[-1])]

    def value(self, name: str, **labels: str) -> float:
        """The one value of that name with these attributes."""
        wanted = set(labels.items())
        (value,) = [value for (each, own), value in self.values().items() if each == name and wanted <= own]
        return value

    def records(self, event: str) -> list[Any]:
        every = [r for q in self.logs for res in q.resource_logs for scope in res.scope_logs for r in scope.log_records]
        return [record for record in every if record.event_name == event]

    def resource(self) -> dict[str, str]:
        return {each.key: _text(each.value) for each in self.metrics[0].resource_metrics[0].resource.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def attributes(record: Any) -> dict[str, str]:
    return {each.key: _text(each.value) for each in record.attributes}


def _metrics(request: Any) -> Iterator[Any]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return ", ".join(_text(each) for each in value.array_value.values)
    return str(getattr(value, kind))
