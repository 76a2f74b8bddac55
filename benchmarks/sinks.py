"""What a tracker costs: seconds of the step for a reading, and processor time of the process until it is handed over.

    python benchmarks/sinks.py --quick
    python benchmarks/sinks.py --only mlflow

The readings have 16 scalars and come one after the other, as in a training whose steps take no time; nothing is
sampled. `step` is the median time of `write_reading`, which the training waits for; `process` is the processor time of
all threads for each reading, the opening left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from seismograd.records import Reading
from seismograd.sinks import JSONLines, MLflow, OpenTelemetry, Prometheus, TensorBoard, Trackio, WandB

NAMES = (
    *("loss", "grad/norm", "lr/0", "update/ratio", "time/step", "time/forward", "time/backward", "time/optimizer"),
    *("time/data", "time/rest", "time/watch", "time/gc", "memory/rss", "memory/own", "memory/after_forward"),
    "memory/after_backward",
)


def otel(folder: Path) -> Any:
    """By a provider of the program's own: no collector is asked."""
    from opentelemetry import _logs, metrics
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
    _logs.set_logger_provider(LoggerProvider())
    return OpenTelemetry()


SINKS: dict[str, Callable[[Path], Any]] = {
    "tensorboard": lambda folder: TensorBoard(folder / "runs", every=1),
    "mlflow": lambda folder: MLflow(f"sqlite:///{folder / 'mlflow.db'}", every=1),
    "wandb": lambda folder: WandB("bench", mode="offline", dir=folder, every=1),
    "trackio": lambda folder: Trackio("bench", every=1),
    "prometheus": lambda folder: Prometheus(0),
    "otel": otel,
    "jsonl": lambda folder: JSONLines(folder / "out.jsonl"),
}


def measure(name: str, readings: int, folder: Path) -> dict[str, Any]:
    sink = SINKS[name](folder)
    sink.begin({"id": "bench", "name": "bench"}, lambda *_: None, sys.exit)
    values = np.random.default_rng(0).random((readings + 1, len(NAMES))).tolist()
    made = [Reading(step, dict(zip(NAMES, row, strict=True))) for step, row in enumerate(values)]
    sink.write_reading(made[0])
    flush = getattr(sink, "flush", lambda timeout: True)
    assert flush(120.0), f"{name} did not take the first reading: {sink.trouble}"
    times, began = [], process_time()
    for reading in made[1:]:
        start = perf_counter()
        sink.write_reading(reading)
        times.append(perf_counter() - start)
    assert flush(600.0), f"{name} did not take the readings"
    took = process_time() - began
    sink.close({"schema": 1, "run": {"status": "healthy", "steps": readings}, "findings": []})
    return {
        "sink": name,
        "readings": readings,
        "step_us": 1e6 * float(np.median(times)),
        "process_ms": 1e3 * took / readings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=SINKS)
    parser.add_argument("--out", type=lambda text: Path(text).absolute())
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(TRACKIO_DIR=folder, WANDB_SILENT="true")
        os.chdir(folder)  # some leave files where they are
        for name in [asked.only] if asked.only else SINKS:
            with redirect_stdout(sys.stderr):  # trackio greets
                row = measure(name, 300 if asked.quick else 2000, Path(folder))
            rows.append(row)
            print(
                f"{name:12} {row['step_us']:7.1f} us of the step, {row['process_ms']:7.3f} ms of the process a reading"
            )
    if asked.out is not None:
        asked.out.write_text(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
