"""The bytes that a model holds, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from seismograd.stats.tensors import there


def memory_of(model: nn.Module, optimizer: Optimizer | None = None) -> dict[str, Any]:
    """Bytes by part, in all, and of each child's parameters. Memory that several share counts where it comes first."""
    counted: set[tuple[str, int]] = set()
    parameters = list(model.parameters())
    by_module = {name: _bytes(child.parameters(), set()) for name, child in model.named_children()}
    state = [] if optimizer is None else _tensors(list(optimizer.state.values()))
    parts = {
        "parameters": _bytes(parameters, counted),
        "gradients": _bytes((p.grad for p in parameters if p.grad is not None), counted),
        "buffers": _bytes(model.buffers(), counted),
        "optimizer": _bytes(state, counted),
    }
    return {**parts, "total": sum(parts.values()), "by_module": by_module}


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in an optimizer's state, however deep."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for part in value for tensor in _tensors(part)] if isinstance(value, (list, tuple)) else []


def _bytes(tensors: Iterable[Tensor], counted: set[tuple[str, int]]) -> int:
    total = 0
    for tensor in tensors:
        for part in _strided(tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor):
            place = (str(part.device), part.data_ptr())
            if place not in counted:
                counted.add(place)
                total += part.numel() * part.element_size()
    return total


def _strided(tensor: Tensor) -> list[Tensor]:
    """What the tensor keeps in memory; nothing if it has none."""
    if tensor.is_meta or is_lazy(tensor) or not there(tensor):
        return []
    if tensor.layout == torch.strided:
        return [tensor]
    return [tensor._indices(), tensor._values()] if tensor.is_sparse else [tensor.values()]
