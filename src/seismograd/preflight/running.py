"""The preflight of a script that runs: on its first batch, before its first backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from seismograd import patches
from seismograd.onlookers.graph import Graph
from seismograd.preflight.flight import BY_THE_WATCH, before_a_run, quietly
from seismograd.preflight.result import Preflight
from seismograd.preflight.scene import Scene, seen_loss
from seismograd.preflight.scripts import trial_of
from seismograd.preflight.trial import CannotCheckError
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
    why, began = "", perf_counter()
    scene.leaves = list(Graph(roots).leaves)
    seen = None if loss is None else seen_loss(*loss)
    scene.losses = [] if seen is None else [seen]
    with patches.apart(), quietly(), torch.no_grad():
        try:
            scene.trial = trial_of(scene.call, optimizers, roots, loss)
            _say(debugger, "preflight: a copy of the model is trained on the first batch, for some seconds")
        except CannotCheckError as error:
            why = str(error)
        result = before_a_run(scene, why)
    result.seconds = perf_counter() - began
    for finding in result.findings:
        if finding.id not in debugger._ignored:
            debugger._judge.add(replace(finding, step=0, last_step=0, rank=debugger.rank))
    message = said(result)
    debugger.events.append({"event_type": "preflight", "message": message, "preflight": result.report()})
    _say(debugger, message)
    return result


def _say(debugger: TrainingDebugger, message: str) -> None:
    if debugger.complain is not None:
        debugger.complain(f"seismograd: {message}")


def said(result: Preflight) -> str:
    """What was checked, in one line."""
    made = [done.name for done in result.checks if not done.left_out]
    missing: dict[str, list[str]] = {}
    for name, why in result.left_out.items():
        if why != BY_THE_WATCH:
            missing.setdefault(why, []).append(name)
    found = f"{len(result.findings)} found" if result.findings else "nothing found"
    text = f"preflight: {len(made)} checks in {result.seconds:.1f} s, {found}"
    for why, names in missing.items():
        text += f"; left out: {', '.join(names)} ({why})"
    return text
