"""`/metrics`: what Prometheus reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

import seismograd
from seismograd.server.problems import among
from seismograd.server.runs import Stored
from seismograd.sinks.metric_names import FINDINGS, OVERHEAD, SEVERITIES, STATUS, STEPS, metric_of, status_number
from seismograd.store import Run

TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST = 200
"""So many live runs are told of one by one."""
RANKS = 64
"""So many ranks of a run are told of one by one: the lowest."""
RECENT = 1000
"""Steps back in which the last value of a scalar is looked for."""
_TOLD = re.compile(r"(loss|val_loss|grad/norm|lr)(/.+)?", re.DOTALL)
"""The scalars that are told of. None of a name of the user's own is, which may hold what no metric can be called."""

router = APIRouter(tags=["about"])


@router.get(
    "/metrics",
    response_class=Response,
    responses=among(beside="text/plain"),
    summary="For Prometheus",
)
def metrics(request: Request, shelf: Stored) -> Response:
    """Runs, and of those that are live: steps, last loss, gradient norm, learning rates, overhead, findings."""
    told = Told()
    told.add("info", "gauge", "The version that answers.", 1, {"version": seismograd.__version__})
    told.add("runs", "gauge", "Runs in the store.", shelf.count())
    live = shelf.live()
    told.add("live_runs", "gauge", "Runs that go on.", len(live))
    told.add("streams", "gauge", "Open live streams.", request.app.state.live.streams)
    found = shelf.severities()
    for severity in SEVERITIES:
        number = sum(each.get(severity, 0) for each in found.values())
        told.add("findings", "gauge", "Findings of all runs.", number, {"severity": severity})
    for run in live[:MOST]:
        _tell(told, run, found.get(run.id, {}))
    return Response(told.text(), media_type=TYPE)


def _tell(told: Told, run: Run, findings: Mapping[str, int]) -> None:
    own = {"run": run.id, "name": run.name}
    _add(told, STEPS, run.steps, own, "counter")
    _add(told, STATUS, status_number(run.status), own)
    measured = (run.state.get("overhead") or {}).get("measured")
    if measured is not None:
        _add(told, OVERHEAD, measured, own)
    thinned = run.state.get("thinned") or 0
    told.add("run_dropped_readings_total", "counter", "Readings that were not recorded.", thinned, own)
    told.add("run_stored_bytes", "gauge", "Bytes in the store, about.", run.bytes, own)
    for severity in SEVERITIES:
        _add(told, FINDINGS, findings.get(severity, 0), {**own, "severity": severity})
    for rank in run.ranks[:RANKS]:
        _tell_values(told, run, rank, {**own, "rank": str(rank)})


def _tell_values(told: Told, run: Run, rank: int, own: Mapping[str, str]) -> None:
    names = run.names(rank)
    wanted = [name for name in names if _TOLD.fullmatch(name)]
    for name, curve in run.series(wanted[:50], start=max(0, run.steps - RECENT), points=1, rank=rank).items():
        metric = metric_of(name)
        told.add(metric.name, "gauge", metric.told, float(curve.last[-1]), {**own, **metric.labels})


def _add(told: Told, what: tuple[str, str], value: Any, labels: Mapping[str, str], kind: str = "gauge") -> None:
    told.add(what[0], kind, what[1], value, labels)


class Told:
    """Metrics in the text format: those of one name stand together."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def add(self, name: str, kind: str, told: str, value: Any, labels: Mapping[str, str] | None = None) -> None:
        name = f"seismograd_{name}"
        lines = self._families.setdefault(name, [f"# HELP {name} {told}", f"# TYPE {name} {kind}"])
        inside = ",".join(f'{label}="{escaped(text)}"' for label, text in (labels or {}).items())
        lines.append(f"{name}{{{inside}}} {number(value)}" if inside else f"{name} {number(value)}")

    def text(self) -> str:
        return "\n".join(line for lines in self._families.values() for line in lines) + "\n"


def escaped(label: str) -> str:
    """A label's value: what would end it, or the line, is written out."""
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number(value: float) -> str:
    if isinstance(value, str):  # as strict JSON has it
        value = float(value)
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
