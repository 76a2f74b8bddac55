"""What a second run of a step with finite trouble tells: evidence, and a sentence about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seismograd.detectors.wording import number

EXPLAINED = frozenset(("gradient-explosion", "gradient-vanishing"))
"""Findings for whose sake the present step is run again, to see how the gradient changes from module to module."""


def evidence_of(insight: Mapping[str, Any] | None, finding: str) -> dict[str, Any]:
    """The insight as evidence, with a note that says what matters most for this kind of finding."""
    if not insight:
        return {}
    said = [_of_gain(insight, finding), _of_samples(insight)]
    note = "; ".join(one for one in said if one)
    return {**insight, "note": note} if note else dict(insight)


def _of_gain(insight: Mapping[str, Any], finding: str) -> str:
    fades = finding == "gradient-vanishing"
    most = insight.get("smallest_gain" if fades else "largest_gain")
    if most is None or (most["gain"] > 0.5 if fades else most["gain"] < 2.0):
        return ""
    word = "fades" if fades else "grows"
    return f"on its way back the gradient {word} most in `{most['module']}` ({number(most['gain'])} times its norm)"


def _of_samples(insight: Mapping[str, Any]) -> str:
    samples = insight.get("samples") or ()
    if not samples:
        return ""
    first, usual = samples[0], 1.0 / insight["of_samples"]
    if first["share"] < 5.0 * usual or first["share"] < 0.2:
        return ""  # no sample stands out
    return f"sample {first['sample']} of the batch carries {first['share']:.0%} of the loss"
