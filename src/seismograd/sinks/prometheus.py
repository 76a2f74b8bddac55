"""Serves the last values of a run to Prometheus."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from seismograd.extras import need
from seismograd.records import Finding, Reading
from seismograd.records import rank as own_rank
from seismograd.sinks.metric_names import FINDINGS, SEVERITIES, STATUS, STEPS, metric_of, status_number
from seismograd.sinks.relay import LEFT_OUT, writes

PORT = 9464
"""The one that is customary for exporters of this kind."""

_servers: dict[tuple[str, int], _Server] = {}
"""Those that are open in this process: several runs share one."""
_lock = threading.RLock()


class Prometheus:
    """A sink that serves the run's last values at `http://HOST:PORT/metrics` until the run is over.

    It has a registry of its own, and listens on this machine alone unless `host` says otherwise. Several runs of a
    process share a port; a port of `0` is any that is free (`sink.port` is which). With `rank=None` every rank serves,
    at `port` plus its number.
    """

    def __init__(self, port: int = PORT, host: str = "127.0.0.1", *, rank: int | None = 0) -> None:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
            raise ValueError(f"port {port!r} is none: give a number from 0, for a free one, to 65535")
        self.port, self.host = port, host
        self._writes, self._rank = writes(rank), own_rank()
        if rank is None and port:
            self.port += self._rank
        self._values: dict[str, float] = {}
        self._run: Mapping[str, Any] = {}
        self._severities: dict[tuple[Any, ...], str] = {}
        self._found: Counter[tuple[str, str]] = Counter()
        self._steps = 0
        self._status = "healthy"
        self._pid = os.getpid()
        self._server: _Server | None = None
        if self._writes:
            need("prometheus_client", "prometheus")
            self._server = _serve(self.host, self.port)
            self.port = self._server.port

    def __repr__(self) -> str:
        return f"<Prometheus {self.address}>"

    @property
    def address(self) -> str:
        """Where Prometheus finds it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def begin(self, run: Mapping[str, Any], note: Callable[..., None], complain: Callable[[str], None]) -> None:
        """Learns which run it is, and begins to tell of it."""
        self._run = run
        if self._server is not None:
            self._server.tell_of(self)

    def write_reading(self, reading: Reading) -> None:
        self._values.update(reading.scalars)
        self._steps = max(self._steps, reading.step + 1)

    def write_finding(self, finding: Finding) -> None:
        before = self._severities.get(finding.key)
        now = finding.severity.value
        if before == now:
            return
        if before is not None:
            self._found[finding.id, before] -= 1
        self._severities[finding.key] = now
        self._found[finding.id, now] += 1
        if now != "info" and status_number(now) > status_number(self._status):
            self._status = now

    def update_finding(self, finding: Finding) -> None:
        self.write_finding(finding)

    def close(self, report: dict[str, Any]) -> None:
        server, self._server = self._server, None
        if server is not None and os.getpid() == self._pid:
            server.leave(self)

    def families(self) -> Iterable[Any]:
        """What is told when Prometheus asks, on a thread of the server."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        own = {"run": str(self._run.get("id") or ""), "name": str(self._run.get("name") or "")}
        made: dict[str, Any] = {}

        def add(name: str, told: str, value: float, labels: Mapping[str, str], kind: Any = GaugeMetricFamily) -> None:
            labels = {**own, **labels}
            if name not in made:
                made[name] = kind(f"seismograd_{name}", told, labels=list(labels))
            made[name].add_metric(list(labels.values()), value)

        add(*STEPS, self._steps, {}, CounterMetricFamily)
        add(*STATUS, status_number(self._status), {})
        found = list(self._found.items())
        for severity in SEVERITIES:
            number = sum(number for (_, each), number in found if each == severity)
            add(*FINDINGS, number, {"severity": severity})
        for (finding, severity), number in found:
            add("run_finding", "Whether it was found, by id.", number, {"id": finding, "severity": severity})
        for scalar, value in list(self._values.items()):
            if scalar not in LEFT_OUT:
                metric = metric_of(scalar)
                add(metric.name, metric.told, value, {"rank": str(self._rank), **metric.labels})
        return made.values()


class _Server:
    """One address, and the runs that it tells of."""

    def __init__(self, host: str, port: int) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self.sinks: list[Prometheus] = []
        self.asked, self.users = port, 1
        self._server, self._thread = start_http_server(port, host, registry=self.registry)
        self.host, self.port = host, int(self._server.server_port)

    def describe(self) -> Iterable[Any]:
        return ()

    def collect(self) -> Iterable[Any]:
        """The families of all runs; those of one name stand together."""
        joined: dict[str, Any] = {}
        for sink in list(self.sinks):
            for family in sink.families():
                if family.name in joined:
                    joined[family.name].samples.extend(family.samples)
                else:
                    joined[family.name] = family
        return joined.values()

    def tell_of(self, sink: Prometheus) -> None:
        if sink not in self.sinks:
            self.sinks.append(sink)

    def leave(self, sink: Prometheus) -> None:
        """The last that leaves closes the port."""
        with _lock:
            with suppress(ValueError):
                self.sinks.remove(sink)
            self.users -= 1
            if self.users:
                return
            _servers.pop((self.host, self.port), None)
        closing = threading.Thread(target=self._server.shutdown, daemon=True)
        closing.start()  # it waits for the loop of the server, which may be on this very thread
        closing.join(2.0)
        self._server.server_close()
        self._thread.join(2.0)


def _serve(host: str, port: int) -> _Server:
    with _lock:
        known = _servers.get((host, port)) if port else None
        if known is not None:
            known.users += 1
            return known
        try:
            server = _Server(host, port)
        except OSError as error:
            raise OSError(
                error.errno,
                f"Prometheus cannot be served at {host}:{port} ({error.strerror or error}): "
                "give another port, or 0 for one that is free",
            ) from None
        _servers[host, server.port] = server
        return server
