"""The preflight of a script that runs: on its first batch, before its first backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.onlookers.graph import Graph
from seismograd.preflight.flight import BY_THE_WATCH, before_a_run
from seismograd.preflight.result import Preflight
from seismograd.preflight.scene import Scene, seen_loss
from seismograd.replay.recorder import Call
from seismograd.training import TrainingDebugger


def check_first(
    debugger: TrainingDebugger,
    models: Mapping[str, nn.Module],
    optimizers: Sequence[Optimizer],
    *,
    roots: Sequence[Any],
    calls: Sequence[Call],
    loss: tuple[str, Any, tuple[Any, ...]] | None,
) -> Preflight:
    """Checks what can be checked, tells the debugger, and says in a line what was done and what it took."""
    scene = Scene(models, optimizers, calls[0] if len(calls) == 1 else None)
    with torch.no_grad():
        scene.leaves = list(Graph([root for root in roots if isinstance(root, Tensor)]).leaves)
        seen = None if loss is None else seen_loss(*loss)
        scene.losses = [] if seen is None else [seen]
        result = before_a_run(scene)
    for finding in result.findings:
        if finding.id not in debugger._ignored:
            debugger._judge.add(replace(finding, rank=debugger.rank))
    message = said(result)
    debugger.events.append({"event_type": "preflight", "message": message, "preflight": result.report()})
    if debugger.complain is not None:
        debugger.complain(f"seismograd: {message}")
    return result


def said(result: Preflight) -> str:
    """What was checked, in one line."""
    made = [done.name for done in result.checks if not done.left_out]
    missing = [name for name, why in result.left_out.items() if why != BY_THE_WATCH]
    found = f"{len(result.findings)} found" if result.findings else "nothing found"
    text = f"preflight: {len(made)} checks in {result.seconds:.1f} s, {found}"
    if missing:
        text += f"; left out: {', '.join(missing)} (sg.preflight can check them)"
    return text
