"""What the policies do to gradients, learning rates and buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seismograd.replay.recorder import Call
from seismograd.stats.tensors import gradient_norm

_RATES = ("lr", "initial_lr", "max_lr", "min_lr")
"""Settings of a param group that are learning rates: those of `OneCycleLR` and `CyclicLR` too."""


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


class HeldBack:
    """The gradients of an optimizer, away while it steps: what has none is left as it is, momentum and decay included.

    A `GradScaler` has looked at them before, and whoever looks after the step finds them again.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._gradients = [(p, p.grad) for p in _parameters(optimizer) if p.grad is not None]
        for parameter, _ in self._gradients:
            parameter.grad = None

    def give_back(self) -> None:
        for parameter, gradient in self._gradients:
            if parameter.grad is None:
                parameter.grad = gradient


def norm_of(optimizer: Optimizer) -> float:
    """The norm of its gradients as they are now, clipped or not; of one that unscales them itself, unscaled."""
    norm = gradient_norm(_parameters(optimizer))
    scale = getattr(optimizer, "grad_scale", None)  # set by a `GradScaler` around the step of such a one
    return norm if scale is None else norm / float(scale)


def clip(optimizer: Optimizer, limit: float) -> float:
    """Scales its gradients down to `limit`; what their norm is now."""
    norm = norm_of(optimizer)
    if norm <= limit:
        return norm
    with torch.no_grad():
        for parameter in _parameters(optimizer):
            if parameter.grad is not None:
                parameter.grad.mul_(limit / norm)
    return limit


def rates_of(optimizers: Iterable[Optimizer]) -> list[float]:
    return [float(group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]


def lower_rates(optimizers: Iterable[Optimizer], schedulers: Sequence[Any], factor: float) -> None:
    """Multiplies learning rates, and what schedulers compute them from, so that it lasts."""
    optimizers = list(optimizers)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for name in _RATES:
                value = group.get(name)
                if isinstance(value, Tensor):
                    value.mul_(factor)
                elif isinstance(value, (int, float)):
                    group[name] = value * factor
    for scheduler in schedulers:
        for one in (scheduler, *getattr(scheduler, "_schedulers", ())):
            if any(getattr(one, "optimizer", None) is optimizer for optimizer in optimizers):
                _lower_schedule(one, factor)


def _lower_schedule(scheduler: Any, factor: float) -> None:
    for name in ("base_lrs", "max_lrs", "_last_lr"):
        values = getattr(scheduler, name, None)
        if isinstance(values, list):
            setattr(scheduler, name, [value * factor for value in values])
    if isinstance(getattr(scheduler, "eta_min", None), (int, float)):
        scheduler.eta_min *= factor


def put_buffers_back(calls: Iterable[Call]) -> int:
    """What the forward passes of a step wrote into buffers (batch norm's statistics) is undone; how many it were."""
    first: dict[int, tuple[Tensor, Tensor]] = {}
    for call in calls:
        if any(output.reached for output in call.outputs):
            for buffer, copied in call.buffers:
                first.setdefault(id(buffer), (buffer, copied))
    with torch.no_grad():
        for buffer, copied in first.values():
            buffer.copy_(copied)
    return len(first)
