"""The tensors in a batch or an output, each with the way to it."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

_DEPTH, _MOST = 8, 1024


def leaves(value: Any, path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Tensor]]:
    """Tensors, arrays and numbers in any nesting of dicts, lists, tuples and dataclasses, as tensors: `['x'][0]`.

    Words, `None` and what else is no number are left out.
    """
    tensor = as_tensor(value)
    if tensor is not None:
        yield path, tensor
        return
    if depth:
        for step, part in _parts(value):
            yield from leaves(part, path + step, depth - 1)


def as_tensor(value: Any) -> Tensor | None:
    """A tensor as it is; arrays, numbers and lists of numbers as tensors; `None` for everything else."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, numbers.Number)):
        return torch.tensor(value) if isinstance(value, (bool, int, float, complex)) else as_tensor(np.asarray(value))
    if isinstance(value, (list, tuple)) and value and _is_numeric(value):
        try:
            value = np.asarray(value)
        except (ValueError, OverflowError):  # rows of different lengths
            return None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        return None
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    if not value.flags.writeable or any(stride < 0 for stride in value.strides):
        value = value.copy()  # torch warns of the one and refuses the other
    try:
        return torch.from_numpy(value)
    except TypeError:  # a dtype that torch has not
        return torch.from_numpy(value.astype(np.float64))


def _is_numeric(value: Sequence[Any]) -> bool:
    """Whether a list holds numbers, or lists of numbers, as far as its first element shows."""
    for _ in range(_DEPTH):
        first = value[0]
        if isinstance(first, (bool, numbers.Number)):
            return all(isinstance(item, (bool, numbers.Number)) for item in value)
        if not isinstance(first, (list, tuple)) or not first:
            return False
        value = first
    return False


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in list(value.items())[:_MOST]]
    if isinstance(value, (list, tuple)):
        named = getattr(type(value), "_fields", None)
        steps = [f".{name}" for name in named] if named else [f"[{at}]" for at in range(len(value))]
        return list(zip(steps, value, strict=True))[:_MOST]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{part.name}", getattr(value, part.name)) for part in dataclasses.fields(value)]
    return []


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Its sizes; -1 where a nested tensor has none."""
    if tensor.is_nested and tensor.layout == torch.strided:
        return (tensor.size(0), *[-1] * (tensor.dim() - 1))
    return tuple(size if type(size) is int else -1 for size in tensor.shape)


def in_words(shape: Sequence[Any]) -> str:
    """`16x8`, with `?` for what is not known."""
    return "x".join("?" if size in (None, -1) else str(size) for size in shape) or "a single number"


def dtype_of(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
