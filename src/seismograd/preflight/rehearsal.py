"""A few steps on one batch under a watch, so that the same detectors judge as in the run itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data._utils.collate import default_collate

from seismograd import attach, patches
from seismograd.config import find_config
from seismograd.records import DebugLevel, Finding
from seismograd.sinks.memory import Memory
from seismograd.training import TrainingDebugger

STEPS = 24
_LONG = 5.0
"""Seconds: no further step is begun after that, once there were enough for most detectors."""

_FEW = 8


@dataclass
class Rehearsal:
    """What was seen."""

    findings: list[Finding]
    losses: list[float]
    looked: set[str]
    """What a second look could see: `mixing`, `lookahead`."""
    error: Exception | None
    seconds: float
    """For each step."""


class _Given:
    """Stands for the iterator of a loader: the user says that this is a batch."""

    _collate_fn = staticmethod(default_collate)


def rehearse(model: nn.Module, optimizer: Optimizer, loss: Callable[[], Any], batch: Any) -> Rehearsal:
    """Trains `STEPS` steps on the batch. The caller puts everything back."""
    memory, began, losses = Memory(), perf_counter(), list[float]()
    config = replace(find_config(), capture=False)
    run = TrainingDebugger(DebugLevel.EXTREME, budget=1.0, sinks=[memory], config=config)
    run.complain = _nobody
    models = attach.check_models(model)
    loop = attach.loop_for(run, models, [optimizer], lag=attach.check_lag(None, models))
    run._loop = loop
    patches.listen(loop)
    error: Exception | None = None

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value.detach()

    try:
        for step in range(STEPS):
            if step >= _FEW and perf_counter() - began > _LONG:
                break
            loop.happens("data_came", batch, _Given())
            if _searches(optimizer):
                losses.append(float(optimizer.step(closure)))
            else:
                losses.append(float(closure()))
                optimizer.step()
    except Exception as what:
        error = what
    finally:
        seconds = (perf_counter() - began) / max(1, len(losses))
        run.close()
    looked = {name for reading in memory.readings for name in reading.facts.get("samples", ())}
    return Rehearsal(run.findings, losses, looked, error, seconds)


def _searches(optimizer: Optimizer) -> bool:
    """Whether its step calls the loss itself, more than once."""
    return type(optimizer).__name__ == "LBFGS"


def _nobody(_text: str) -> None: ...
