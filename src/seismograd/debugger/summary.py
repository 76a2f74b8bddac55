"""What a debugger did and saw, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from seismograd.memory.snapshots import compare
from seismograd.records import Severity, strict

if TYPE_CHECKING:
    from seismograd.debugger.desk import PyTorchDebugger

OF_GRADIENTS = frozenset(("gradient-explosion", "gradient-vanishing", "nonfinite-gradient"))
"""Findings that count as gradient violations."""


def summary_of(debugger: PyTorchDebugger) -> dict[str, Any]:
    """Under the names of the seeds, as strict JSON."""
    findings = debugger.findings
    sick = [finding for finding in findings if finding.severity is not Severity.INFO]
    times = [metrics.execution_time for metrics in debugger.debug_metrics]
    usage = [metrics.memory_usage for metrics in debugger.debug_metrics]
    kept = debugger.memory_snapshots
    summary: dict[str, Any] = strict(
        {
            "level": debugger.level,
            "debug_mode": debugger.mode,
            "anomaly_detection_enabled": torch.is_anomaly_enabled(),
            "profiling_active": debugger.profilers > 0,
            "total_anomalies": sum(finding.count for finding in sick),
            "gradient_violations": sum(finding.count for finding in sick if finding.id in OF_GRADIENTS),
            "findings": [finding.id for finding in findings],
            "event_counts": debugger.event_counts,
            "debug_history_length": len(debugger.debug_events),
            "memory": {
                "snapshots": len(kept),
                "change": compare(kept[0], kept[-1]) if len(kept) > 1 else None,
                "peak_rss": max((each["rss"] for each in kept), default=None),
            },
            "errors": len(debugger.error_system.error_tracker.errors),
            "total_operations": len(times),
            "avg_execution_time": sum(times) / len(times) if times else None,
            "max_execution_time": max(times, default=None),
            "avg_memory_usage": sum(usage) / len(usage) if usage else None,
            "total_optimizations": len(debugger.optimization_metrics),
        }
    )
    return summary
