"""Tensors in numbers: finite or not, and an `Operand` of anything that went into an op."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from seismograd.records import Operand

_SHOWN = 3
"""So many places of bad elements are told."""


def plain(tensor: Tensor) -> Tensor | None:
    """The numbers of a tensor, real and dense; `None` where there are none to be looked at."""
    try:
        if tensor.is_meta or tensor.is_quantized:
            return None
        tensor = tensor.detach()
        local = getattr(tensor, "_local_tensor", None)
        if isinstance(local, Tensor):
            tensor = local
        if tensor.layout != torch.strided:
            tensor = tensor._values() if tensor.layout == torch.sparse_coo else tensor.to_dense()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        if tensor.is_floating_point() and tensor.element_size() == 1:  # float8 has no arithmetic
            tensor = tensor.float()
    except (RuntimeError, NotImplementedError):
        return None
    return tensor


def is_bad(tensor: Tensor) -> bool:
    """Whether any element is NaN or infinite. One pass over it; a second one only if the sum is not finite."""
    numbers = plain(tensor)
    if numbers is None or not numbers.is_floating_point() or numbers.numel() == 0:
        return False
    wide = torch.float32 if numbers.element_size() < 4 else None
    if math.isfinite(numbers.sum(dtype=wide).item()):
        return False
    return not bool(torch.isfinite(numbers).all())


def holds_nan(tensor: Tensor) -> bool:
    numbers = plain(tensor)
    return numbers is not None and numbers.is_floating_point() and bool(torch.isnan(numbers).any())


def only_minus_infinity(tensor: Tensor) -> bool:
    """Whether all that is not finite is -Inf, as in a mask."""
    numbers = plain(tensor)
    if numbers is None or not numbers.is_floating_point():
        return False
    return not bool((torch.isnan(numbers) | (numbers == math.inf)).any())


def bad_places(tensor: Tensor) -> tuple[float, int, tuple[tuple[int, ...], ...]]:
    """The first bad value, how many there are, and the places of the first few in the tensor's own layout.

    Of a sharded one, those of the shard that is here: to look at all of it would take a collective.
    """
    detached = tensor.detach()
    local = getattr(detached, "_local_tensor", None)
    if isinstance(local, Tensor):
        detached = local
    if detached.layout != torch.strided:
        detached = detached.to_dense() if detached.layout != torch.sparse_coo else detached._values()
    bad = ~torch.isfinite(detached)
    places = bad.nonzero()
    if not len(places):
        return math.nan, 0, ()
    shown = [tuple(int(at) for at in place) for place in places[:_SHOWN].tolist()]
    first = detached[shown[0]] if shown[0] else detached
    value = first.item()
    if isinstance(value, complex):
        value = math.nan if math.isnan(value.real) or math.isnan(value.imag) else math.inf
    return float(value), int(bad.sum()), tuple(shown)


def operand(name: str, tensor: Tensor, parameter: str | None = None) -> Operand:
    """The tensor in numbers."""
    shape, dtype = tuple(int(size) for size in tensor.shape), str(tensor.dtype).removeprefix("torch.")
    numbers = plain(tensor)
    if numbers is None or numbers.numel() == 0 or numbers.dtype == torch.bool:
        return Operand(name, shape, dtype, size=tensor.numel(), parameter=parameter)
    low = high = None
    nan = inf = 0
    finite = numbers
    if numbers.is_floating_point():
        nan, inf = int(torch.isnan(numbers).sum()), int(torch.isinf(numbers).sum())
        if nan or inf:
            finite = numbers[torch.isfinite(numbers)]
    if finite.numel():
        low, high = float(finite.min()), float(finite.max())
    return Operand(
        name,
        shape,
        dtype,
        low,
        high,
        size=numbers.numel(),
        zeros=int((numbers == 0).sum()),
        negatives=int((numbers < 0).sum()),
        nan=nan,
        inf=inf,
        parameter=parameter,
    )


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors agree, NaN with NaN, up to the noise of another order of summation."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    first, second = plain(one), plain(other)
    if first is None or second is None or not first.is_floating_point():
        return True
    return bool(torch.allclose(first.float(), second.to(first.device).float(), rtol=1e-3, atol=1e-5, equal_nan=True))


_MOST = 10_000
"""So many things are looked at for tensors in them."""


def tensors_in(value: Any, path: str = "") -> list[tuple[str, Tensor]]:
    """Every tensor inside any nesting of lists, dicts, dataclasses and plain objects, with the way to it."""
    if isinstance(value, Tensor):
        return [(path, value)]
    found: list[tuple[str, Tensor]] = []
    waiting = [(path, value, 0)]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        at, one, depth = waiting.pop()
        if isinstance(one, Tensor):
            found.append((at, one))
            continue
        if one is None or isinstance(one, _PLAIN) or depth > 6 or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [(at + step, item, depth + 1) for step, item in reversed(_children(one))]
    return found


_PLAIN = (str, bytes, int, float, bool, complex, torch.nn.Module, type)


def _children(value: Any) -> list[tuple[str, Any]]:
    try:
        return _parts(value)
    except Exception:  # an object of the user's that does not want to be looked at
        return []


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):  # as dicts do it: one of the user's kind may load what it is asked for
        return [(f"[{key!r}]", item) for key, item in dict.items(value)] if dict.__len__(value) <= _MOST else []
    if isinstance(value, (list, tuple)):
        if len(value) > _MANY and all(isinstance(item, _PLAIN) for item in value[:_MANY]):
            return []  # numbers, or words
        fields = getattr(type(value), "_fields", None)
        if fields:
            return [(f".{name}", item) for name, item in zip(fields, value, strict=False)]
        return [(f"[{at}]", item) for at, item in enumerate(value[:_MOST])]
    if isinstance(value, (set, frozenset)):
        return [("{}", item) for item in value] if len(value) <= _MOST else []
    attributes = object.__getattribute__(value, "__dict__") if hasattr(type(value), "__dict__") else {}
    if not attributes:
        names = getattr(type(value), "__slots__", ())
        names = (names,) if isinstance(names, str) else names
        found = [(name, object.__getattribute__(value, name)) for name in names if _is_set(value, name)]
        attributes = dict(found)
    if len(attributes) > 64:  # no batch: some engine that came along
        return []
    return [(f".{name}", item) for name, item in attributes.items() if not name.startswith("__")]


_MANY = 64


def _is_set(value: Any, name: str) -> bool:
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return False
    return True


def mapped(value: Any, change: Any, depth: int = 0) -> Any:
    """The same nesting with `change(tensor)` in the place of every tensor; what holds none is handed on as it is."""
    if isinstance(value, Tensor):
        return change(value)
    if depth > 6 or not tensors_in(value):
        return value
    if isinstance(value, dict):
        changed = {key: mapped(item, change, depth + 1) for key, item in value.items()}
        if type(value) is dict:
            return changed
        copied = _copy(value)
        for key, item in changed.items():
            copied[key] = item
        return copied
    if isinstance(value, tuple):
        items = [mapped(item, change, depth + 1) for item in value]
        if type(value) is tuple:
            return tuple(items)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list):
        return type(value)([mapped(item, change, depth + 1) for item in value])
    if isinstance(value, (set, frozenset)):
        return type(value)([mapped(item, change, depth + 1) for item in value])
    copied = _copy(value)
    for step, item in _children(value):
        if step.startswith("."):
            object.__setattr__(copied, step[1:], mapped(item, change, depth + 1))
    return copied


def _copy(value: Any) -> Any:
    import copy

    return copy.copy(value)
