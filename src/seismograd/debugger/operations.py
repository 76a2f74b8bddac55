"""One measured operation: its time, the process's memory, and gradients that are not finite when a step uses them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Self

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from seismograd.debugger.modes import DebugMode
from seismograd.memory import accelerator, snapshots
from seismograd.stats.tensors import all_finite, bad_counts, there

_MB = 2**20


@dataclass(frozen=True)
class OperationMetrics:
    """What one `debug_context` measured. Memory is that of the process, in MB."""

    name: str
    mode: DebugMode
    execution_time: float
    memory_usage: float
    memory_change: float
    gpu_memory: float | None = None
    gradient_anomalies: list[str] = field(default_factory=list)
    error: str | None = None


class Operation:
    """Measures a block. `metrics` is there once it is over."""

    metrics: OperationMetrics

    def __init__(self, name: str, mode: DebugMode, *, checks_gradients: bool) -> None:
        self.name, self.mode = name, mode
        self.anomalies: list[str] = []
        self._checks = checks_gradients
        self._handle: Any = None

    def __enter__(self) -> Self:
        if self._checks:
            self._handle = register_optimizer_step_pre_hook(self._before_step)
        self._rss, self._began = snapshots.rss(), perf_counter()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        seconds, rss = perf_counter() - self._began, snapshots.rss()
        if self._handle is not None:
            self._handle.remove()
        reserved = accelerator.reserved()
        self.metrics = OperationMetrics(
            self.name,
            self.mode,
            seconds,
            rss / _MB,
            (rss - self._rss) / _MB,
            accelerator.allocated() / _MB if reserved else None,
            self.anomalies,
            None if error is None else f"{type(error).__name__}: {error}".rstrip(": "),
        )

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        try:
            with torch.no_grad():
                self.anomalies += _bad_gradients(optimizer)
        except Exception as error:  # the step is the user's, and goes on
            self.anomalies.append(f"the gradients could not be checked: {type(error).__name__}: {error}")


def _bad_gradients(optimizer: Optimizer) -> Iterator[str]:
    for at, group in enumerate(optimizer.param_groups):
        held = {place: p.grad for place, p in enumerate(group["params"]) if p.grad is not None and there(p.grad)}
        if all_finite(list(held.values())):
            continue
        names = group.get("param_names")
        for place, gradient in held.items():
            nan, inf = bad_counts(gradient)
            if nan or inf:
                who = names[place] if names else f"parameter {place} of group {at}"
                yield f"{who}: {nan} NaN and {inf} Inf in its gradient"
