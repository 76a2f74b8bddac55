"""What the policies do to gradients, learning rates and buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from seismograd import living
from seismograd.replay.recorder import Call
from seismograd.stats.tensors import gradient_norm

_RATES = ("lr", "initial_lr", "max_lr", "min_lr")
"""Settings of a param group that are learning rates: those of `OneCycleLR` and `CyclicLR` too."""


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


class HeldBack:
    """An update that does not take place: a stand-in without parameters steps, and the optimizer stays as it is.

    So its gradients, settings and counters stay where hooks and a `GradScaler` look for them. Inside a closure the
    step has begun, and an optimizer that is none of torch's own may keep its parameters elsewhere: there the gradients
    are away while it steps, too.
    """

    def __init__(self, optimizer: Optimizer, *, in_closure: bool = False) -> None:
        self.stand_in = None if in_closure else _stand_in_for(optimizer)
        hides = in_closure or not type(optimizer).__module__.startswith("torch.optim.")
        self._gradients = [(p, p.grad) for p in _parameters(optimizer) if hides and p.grad is not None]
        for parameter, _ in self._gradients:
            parameter.grad = None

    def give_back(self) -> None:
        for parameter, gradient in self._gradients:
            if parameter.grad is None:
                parameter.grad = gradient


def _stand_in_for(optimizer: Optimizer) -> Optimizer:
    """An optimizer of the same kind and settings, of which each group is empty."""
    stand_in: Optimizer = object.__new__(type(optimizer))
    vars(stand_in).update(vars(optimizer))
    stand_in.param_groups = [{**group, "params": []} for group in optimizer.param_groups]
    return stand_in


def norm_of(optimizer: Optimizer) -> float:
    """The norm of its gradients as they are now, clipped or not; of one that unscales them itself, unscaled."""
    norm = gradient_norm(_parameters(optimizer))
    scale = getattr(optimizer, "grad_scale", None)  # set by a `GradScaler` around the step of such a one
    return norm if scale is None else norm / float(scale)


def squares_of(optimizer: Optimizer, world: int) -> float:
    """What one of `world` ranks has of the square of the whole model's norm: shards add up, replicas count once."""
    by_share: dict[float, list[Tensor]] = {}
    for parameter in _parameters(optimizer):
        by_share.setdefault(_share(parameter, world), []).append(parameter)
    scale = float(getattr(optimizer, "grad_scale", None) or 1.0)
    total = 0.0
    for share, parameters in by_share.items():
        norm = gradient_norm(parameters) / scale
        total += share * norm * norm
    return total


def _share(parameter: Tensor, world: int) -> float:
    """Of a parameter that some ranks hold parts of, and others the same parts again."""
    parts = 1
    mesh = getattr(parameter, "device_mesh", None)
    for at, placement in enumerate(getattr(parameter, "placements", ())):
        if mesh is not None and placement.is_shard():
            parts *= mesh.size(at)
    return parts / world


def clip(optimizer: Optimizer, norm: float, limit: float) -> float:
    """Scales its gradients, of this norm, down to `limit`; what their norm is now."""
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
    optimizers, lowered = list(optimizers), set[int]()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for name in _RATES:
                value = group.get(name)
                if isinstance(value, Tensor):
                    if id(value) not in lowered:  # all groups have the same one, if it was given to the optimizer
                        value.mul_(factor)
                    lowered.add(id(value))
                elif isinstance(value, (int, float)):
                    group[name] = value * factor
    for scheduler in schedulers:
        for one in (scheduler, *getattr(scheduler, "_schedulers", ())):
            if any(getattr(one, "optimizer", None) is optimizer for optimizer in optimizers):
                _lower_schedule(one, factor)


def schedulers_of(optimizers: Sequence[Optimizer]) -> list[Any]:
    """The schedulers that there are for them, found among all objects."""
    made = [thing for thing in living.objects() if issubclass(type(thing), LRScheduler)]
    return [one for one in made if any(getattr(one, "optimizer", None) is optimizer for optimizer in optimizers)]


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
