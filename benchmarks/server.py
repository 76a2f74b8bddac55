"""The service under load: requests a second and p99 on a short and a long run, and how far behind a live stream is.

    python benchmarks/server.py [--steps 10000 1000000] [--layers 200] [--clients N] [--seconds S] [--quick]

Stores are made with so many steps (a million takes a minute or two), `seismograd ui` serves each of them in a process
of its own, and clients ask over real sockets: one alone, which is what a person sees, then several at once. Prints
tables and writes benchmarks/results/server.json.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from seismograd.records import Finding, Reading, Severity
from seismograd.store.recorder import Batch, Recorder
from seismograd.store.schema import url_of
from seismograd.store.writing import Writing
from storing.readings import Synthetic

RESULTS = Path(__file__).parent / "results" / "server.json"
RUN = "20260101-101500-bench0"
SAMPLED = 50
"""Every so many steps the layers are read, as the governor would have it on quick steps."""
CHUNK = 4096
PATIENCE = 60.0

VIEWS = {
    "list of runs": "/api/runs",
    "one run": f"/api/runs/{RUN}",
    "loss, whole run": f"/api/runs/{RUN}/series?name=loss",
    "six curves, whole run": f"/api/runs/{RUN}/series?points=1000&name=loss&name=grad/norm&name=lr/0&name=time/step"
    "&name=time/data&name=memory/rss",
    "loss, zoomed in": f"/api/runs/{RUN}/series?name=loss&start={{third}}&stop={{end}}",
    "layers, whole run": f"/api/runs/{RUN}/heat?kind=gradient&column=norm&samples=200",
    "findings": f"/api/runs/{RUN}/findings",
    "events": f"/api/runs/{RUN}/events",
}


def fill(folder: Path, steps: int, layers: int) -> None:
    """A run of so many steps, with findings and events, written as the recorder writes it, but without its waits."""
    writing = Writing(url_of(folder), RUN, "benchmark", rank=0, limit=200 * 1024 * 1024, about={})
    dear, cheap = Synthetic(layers), Synthetic(0)
    for start in range(0, steps, CHUNK):
        stop = min(steps, start + CHUNK)
        readings = [(dear if step % SAMPLED == 0 else cheap).reading(step) for step in range(start, stop)]
        batch = Batch([(reading, 1.7e9 + 0.1 * reading.step) for reading in readings])
        batch.state = {"status": "warning", "level": "advanced", "budget": 0.05, "steps": stop}
        writing.write(batch)
        writing.thin()
    findings = [
        Finding(f"finding-{at}", Severity.WARNING, at, "made up", evidence={"value": 1.0}, recommendations=["none"])
        for at in range(20)
    ]
    events = [{"time": 1.7e9 + at, "event_type": "note", "message": f"event {at}"} for at in range(1000)]
    writing.write(Batch(findings={finding.key: finding for finding in findings}, events=events, state=batch.state))
    writing.disconnect()


@contextmanager
def served(store: Path) -> Iterator[int]:
    """The port of a server in a process of its own."""
    command = [sys.executable, "-m", "seismograd", "ui", "--no-open", "--port", "0", "--store", str(store)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        if found is None:
            raise SystemExit("the server did not start")
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def asked(port: int, path: str, seconds: float, least: int) -> tuple[list[float], int]:
    """Asks again and again over one connection: the times in milliseconds, and the bytes of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    times, size = [], 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < least:
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        size = len(answer.read())
        times.append(1e3 * (time.perf_counter() - began))
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
    connection.close()
    return times, size


def measured(port: int, path: str, clients: int, seconds: float) -> dict[str, float]:
    first, size = asked(port, path, 0.0, 1)
    alone, _ = asked(port, path, seconds, 20)
    every: list[float] = []
    began = time.perf_counter()
    threads = [threading.Thread(target=lambda: every.extend(asked(port, path, seconds, 1)[0])) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    return {
        "bytes": size,
        "first_ms": first[0],
        "median_ms": float(np.median(alone)),
        "p99_ms": float(np.percentile(alone, 99)),
        "per_second": len(every) / took,
        "p99_ms_under_load": float(np.percentile(every, 99)),
    }


def views(folder: Path, steps: int, layers: int, clients: int, seconds: float) -> dict[str, Any]:
    began = time.perf_counter()
    fill(folder, steps, layers)
    filled = time.perf_counter() - began
    size = sum(path.stat().st_size for path in folder.iterdir())
    found = {}
    with served(folder) as port:
        for name, path in VIEWS.items():
            third = steps // 3
            found[name] = measured(port, path.format(third=third, end=third + 2000), clients, seconds)
    return {"steps": steps, "layers": layers, "bytes": size, "filled_s": filled, "views": found}


def lag(folder: Path, listeners: int, seconds: float) -> dict[str, float]:
    """From the moment a reading is handed over to the one in which its value arrives, at a hundred steps a second."""
    sent: dict[int, float] = {}
    recorder = Recorder(url_of(folder), RUN, "live", state=lambda: {"status": "healthy", "steps": len(sent)})
    recorder.write_reading(Reading(0, {"loss": 0.0}))
    sent[0] = time.perf_counter()
    recorder.flush()
    lags: list[list[float]] = [[] for _ in range(listeners)]
    with served(folder) as port:
        over = threading.Event()

        def listen(own: list[float]) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", f"/api/runs/{RUN}/live?name=loss")
            stream = connection.getresponse()
            while (line := stream.readline()) and not over.is_set():
                now = time.perf_counter()
                if line.startswith(b"data: ") and b'"series"' in line:
                    steps = json.loads(line[6:])["series"].get("loss", {"steps": []})["steps"]
                    own += [now - sent[step] for step in steps if step in sent]
            connection.close()

        threads = [threading.Thread(target=listen, args=(own,)) for own in lags]
        for thread in threads:
            thread.start()
        began = time.perf_counter()
        while time.perf_counter() - began < seconds + 1:
            step = len(sent)
            sent[step] = time.perf_counter()
            recorder.write_reading(Reading(step, {"loss": 1.0 / (1 + step)}))
            time.sleep(0.01)
        over.set()
        recorder.close({"schema": 1, "run": {"status": "healthy"}})
        for thread in threads:
            thread.join(PATIENCE)
    every = 1e3 * np.array([each for own in lags for each in own])
    return {
        "listeners": listeners,
        "values": len(every),
        "median_ms": float(np.median(every)),
        "p99_ms": float(np.percentile(every, 99)),
        "max_ms": float(every.max()),
    }


def show(result: dict[str, Any]) -> None:
    for part in result["runs"]:
        print(
            f"\n{part['steps']:,} steps, {part['layers']} layers, {part['bytes'] / 2**20:.0f} MB on disk; "
            f"{result['clients']} clients at once\n"
        )
        head = ("view", "KB", "first ms", "median ms", "p99 ms", "per second", "p99 under load")
        print(f"{head[0]:<24}" + "".join(f"{word:>15}" for word in head[1:]))
        for name, view in part["views"].items():
            values = (view["bytes"] / 1e3, *(view[key] for key in list(view)[1:]))
            print(f"{name:<24}" + "".join(f"{value:>15,.1f}" for value in values))
    print("\nlive stream, from the reading to the arrival of its value\n")
    print(f"{'listeners':>9}{'median ms':>12}{'p99 ms':>12}{'max ms':>12}")
    for part in result["live"]:
        print(f"{part['listeners']:>9}{part['median_ms']:>12.0f}{part['p99_ms']:>12.0f}{part['max_ms']:>12.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[10_000, 1_000_000], metavar="N")
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each view, alone and under load")
    parser.add_argument("--listeners", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--quick", action="store_true", help="a small one, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.steps, arguments.layers, arguments.clients = [2000], 4, 2
        arguments.seconds, arguments.listeners = 0.2, [1, 2]
    result: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "clients": arguments.clients,
        "runs": [],
        "live": [],
    }
    with tempfile.TemporaryDirectory(prefix="seismograd-server-") as made:
        folder = Path(made)
        for steps in arguments.steps:
            own = folder / str(steps)
            result["runs"].append(views(own, steps, arguments.layers, arguments.clients, arguments.seconds))
        for listeners in arguments.listeners:
            result["live"].append(lag(folder / f"live-{listeners}", listeners, 2 * arguments.seconds))
    result["load"] = os.getloadavg()[0]
    show(result)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
