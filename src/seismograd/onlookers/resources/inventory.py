"""What is alive in memory: parameters, gradients, the optimizer's state, and what autograd keeps for backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seismograd.onlookers.graph import Graph, saved_by
from seismograd.probes.watched import Watched

_STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "RMSprop": 1, "Adagrad": 1, "SGD": 0}
"""How many numbers an optimizer keeps for each weight; one more with momentum."""

_MOST_NODES = 20_000


def states_of(optimizer: Any) -> int:
    """How many numbers an optimizer keeps for each weight once it has stepped; 2 where that is not known."""
    if optimizer is None:
        return 2
    kept = _STATES.get(type(optimizer).__name__, 2)
    return kept + any(group.get("momentum") for group in optimizer.param_groups)


class Inventory:
    """Adds up bytes on one device; a storage that several tensors share counts once, and for the first of them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._seen: set[int] = set()

    def of(self, tensors: Iterable[Any]) -> int:
        return sum(self.add(tensor) for tensor in tensors if isinstance(tensor, Tensor))

    def add(self, tensor: Tensor) -> int:
        """Its bytes; 0 where its storage was counted before, or lies elsewhere."""
        if tensor.layout != torch.strided or tensor.device.type != self.device.type:
            return 0
        try:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
        except (RuntimeError, NotImplementedError):  # a wrapper without storage
            return 0
        if key in self._seen:
            return 0
        self._seen.add(key)
        return size


def alive(watched: Watched, tensors: Sequence[Tensor], device: torch.device) -> dict[str, int]:
    """The bytes of each kind. `tensors` are those at hand, whose graphs hold what backward would need."""
    held = Inventory(device)
    parameters = watched.roster.parameters
    models = watched.models.values()
    found = {
        "parameters": held.of(parameters) + held.of(p for model in models for p in model.parameters()),
        "buffers": held.of(buffer for model in models for buffer in model.buffers()),
        "gradients": held.of(parameter.grad for parameter in parameters),
        "optimizer": held.of(_states(watched.optimizers)),
    }
    activations = 0
    for node in Graph(tensors).nodes:
        activations += held.of(saved_by(node.function).values())
    found["activations"] = activations + held.of(tensor for tensor in tensors if tensor.grad_fn is not None)
    return found


def still_to_come(watched: Watched, found: dict[str, int]) -> int:
    """What a whole step needs besides: gradients and state that are not there yet."""
    trained = sum(p.numel() * p.element_size() for p in watched.roster.parameters if p.requires_grad)
    optimizers = watched.optimizers
    states = max((states_of(optimizer) for optimizer in optimizers), default=2)
    return max(0, trained - found["gradients"]) + max(0, trained * states - found["optimizer"])


def _states(optimizers: Iterable[Optimizer]) -> Iterable[Any]:
    for optimizer in optimizers:
        for state in optimizer.state.values():
            if isinstance(state, dict):
                yield from state.values()
