"""What the metrics of a run are called, for Prometheus and OpenTelemetry alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

STATUSES = ("healthy", "warning", "critical", "crashed")
SEVERITIES = ("info", "warning", "critical")

STEPS = ("run_steps_total", "Steps of a live run.")
STATUS = ("run_status", "0 healthy, 1 warning, 2 critical, 3 crashed.")
FINDINGS = ("run_findings", "Findings of a live run.")
OVERHEAD = ("run_overhead_ratio", "The share of the time that watching takes.")


class Metric(NamedTuple):
    """A scalar as a metric: its name, what it is, and what tells it from others of that name."""

    name: str
    told: str
    labels: Mapping[str, str]


def metric_of(scalar: str) -> Metric:
    """The metric of a scalar: `loss/0` is `run_loss` with `series="0"`; one of the user's own is a `run_value`."""
    head, _, tail = scalar.partition("/")
    if head in ("loss", "val_loss") and "/" not in tail:
        return Metric(f"run_{head}", "The last one.", {"series": tail})
    if scalar == "grad/norm" or scalar.startswith("grad/norm/"):
        return Metric("run_gradient_norm", "The last norm of all gradients.", {"series": tail.partition("/")[2]})
    if head == "lr" and tail:
        return Metric("run_learning_rate", "The last learning rate.", {"group": tail})
    if head == "time" and tail:
        return Metric("run_step_seconds", "Seconds of the last step, by phase.", {"phase": tail})
    if head == "memory" and tail:
        return Metric("run_memory_bytes", "Memory, by kind.", {"kind": tail})
    return Metric("run_value", "Another value, by its name.", {"value": scalar})


def status_number(status: Any) -> int:
    """The status as a number that grows with how bad it is."""
    return STATUSES.index(status) if status in STATUSES else 0
