"""How detectors say what they found: numbers as people write them, names, and the finding itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seismograd.protocols import Detector
from seismograd.records import Finding, Reading, Severity, Where


def found(
    detector: Detector,
    reading: Reading,
    severity: Severity,
    message: str,
    evidence: Mapping[str, Any],
    *,
    advice: Sequence[str],
    where: Where | None = None,
    step: int | None = None,
) -> Finding:
    """The finding of `detector` at this reading, or at the earlier `step` where the fault was."""
    at = reading.step if step is None else step
    place = where if where is not None else Where()
    return Finding(detector.id, severity, at, message, reading.rank, place, evidence, tuple(advice))


def number(value: float) -> str:
    """Three digits, and no more zeros than needed: `2.31`, `1.2e+09`, `NaN`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return f"{value:.3g}"


def one_digit(value: float) -> float:
    """`value` rounded to one significant digit, as a learning rate is given."""
    return float(f"{value:.0e}") if math.isfinite(value) else value


def parameter(name: str, phase: str | None = None) -> Where:
    """The place of a parameter: its module is the name without the last part."""
    return Where(module=name.rpartition(".")[0] or None, parameter=name, phase=phase)


def names(many: Sequence[str], show: int = 3) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(f"`{name}`" for name in many[:show])
    return shown if len(many) <= show else f"{shown} and {len(many) - show} more"


def rates(scalars: Mapping[str, float]) -> list[float]:
    """The learning rates of all parameter groups."""
    return [value for name, value in scalars.items() if name.startswith("lr/")]
