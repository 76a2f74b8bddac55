"""Makes the result of a profile from what its events come to. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seismograd.profiling.lines import Line, Lines, code, shown
from seismograd.profiling.reading import Module, Op, Totals
from seismograd.profiling.result import LineCost, ModuleCost, OpCost, ProfileResult
from seismograd.profiling.verdict import Figures, sentences

ROWS = 20
"""So many rows a table has."""
_OF_PYTHON = 0.3


def summarise(
    totals: Totals,
    lines: Lines | None,
    *,
    seconds: float,
    steps: int,
    device: str | None,
    tensor_cores: bool,
    watched: bool,
    notes: Sequence[str],
    trace: Path | None,
) -> ProfileResult:
    """The result. `tensor_cores`: the device has some that float32 does not use at present. `watched`: a watch was at
    work, so that the time between ops is not the user's alone."""
    used = device if totals.device else None
    ops = _ops(totals, lines, seconds, used)
    modules = _modules(totals, seconds, used)
    costs = _lines(lines, seconds) if lines is not None and ops else []
    phases = _phases(totals, seconds)
    figures = Figures(
        seconds,
        steps,
        ops,
        modules,
        costs,
        phases,
        0.0 if watched else _share(totals.between, seconds),
        used,
        _share(totals.device_busy, seconds),
        totals.copies_to_device / max(1, totals.device),
        totals.full_precision / max(1, totals.device) if tensor_cores else 0.0,
        totals.workers,
    )
    if lines is not None and figures.between + phases.get("data", 0.0) >= _OF_PYTHON:
        notes = [
            *notes,
            "Recording Python's calls makes Python look slower than it is; `stacks=False` leaves them out.",
        ]
    cut = [f"Only the first {totals.events - 1:,} events were added up; the trace has all."] if totals.cut else []
    return ProfileResult(
        seconds=seconds,
        steps=steps,
        events=totals.events,
        device=used,
        device_busy=figures.device_busy if used else None,
        phases=phases,
        ops=ops[:ROWS],
        modules=modules[:ROWS],
        lines=costs[:ROWS],
        verdict=sentences(figures),
        notes=[*notes, *cut],
        trace=None if trace is None else str(trace),
    )


def _ops(totals: Totals, lines: Lines | None, seconds: float, device: str | None) -> list[OpCost]:
    ordered = sorted(totals.ops.items(), key=lambda pair: (-pair[1].device if device else 0, -pair[1].own))
    return [
        OpCost(
            name=name,
            calls=op.calls,
            seconds=op.own / 1e9,
            share=_share(op.own, seconds),
            device_seconds=op.device / 1e9,
            device_share=op.device / max(1, totals.device),
            allocated=op.allocated,
            flops=op.flops,
            shapes=_shapes(op),
            line=_main_line(lines.of_ops.get(name)) if lines is not None else "",
        )
        for name, op in ordered
        if op.calls
    ]


def _shapes(op: Op) -> str:
    event: Any = op.event
    given = [shape for shape in (event.shapes() if event is not None else []) if shape]
    return ", ".join("x".join(str(size) for size in shape) for shape in given[:4] if isinstance(shape[0], int))


def _main_line(found: Counter[Line] | None) -> str:
    if not found:
        return ""
    (file, line), _ = found.most_common(1)[0]
    return f"{shown(file)}:{line}"


def _modules(totals: Totals, seconds: float, device: str | None) -> list[ModuleCost]:
    def backward(module: Module) -> int:
        inside, outermost = f"{module.name}.", module.name == module.root
        return sum(
            other.own_backward
            for other in totals.modules.values()
            if other.root == module.root and (outermost or other is module or other.name.startswith(inside))
        )

    costs = [
        ModuleCost(
            name=module.name,
            kind=module.kind,
            calls=module.calls,
            forward=module.forward / 1e9,
            backward=backward(module) / 1e9,
            own=max(0, module.own + module.own_backward) / 1e9,
            share=(
                module.device / max(1, totals.device)
                if device
                else _share(max(0, module.own + module.own_backward), seconds)
            ),
            device_seconds=module.device / 1e9,
            op=module.ops.most_common(1)[0][0] if module.ops else "",
        )
        for module in totals.modules.values()
    ]
    return sorted(costs, key=lambda each: -each.share)


def _lines(lines: Lines, seconds: float) -> list[LineCost]:
    costs = [
        LineCost(shown(at[0]), at[1], code(at), lines.calls[at], own / 1e9, _share(own, seconds))
        for at, own in lines.own.most_common(ROWS)
        if own > 0
    ]
    return costs


def _phases(totals: Totals, seconds: float) -> dict[str, float]:
    named = {name: _share(totals.phases[name], seconds) for name in ("data", "forward", "backward", "optimizer")}
    phases = {name: share for name, share in named.items() if share}
    return {**phases, "rest": max(0.0, 1.0 - sum(phases.values()))} if phases else {}


def _share(nanoseconds: float, seconds: float) -> float:
    return min(1.0, max(0.0, nanoseconds / 1e9 / seconds)) if seconds > 0 else 0.0
