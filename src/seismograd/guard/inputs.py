"""`validate_model_input`: refuses what a model should not be given, and says what and where it is."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from seismograd.detectors.wording import number
from seismograd.guard.leaves import dtype_of, in_words, leaves, shape_of
from seismograd.stats.describe import readable
from seismograd.stats.tensors import there

_SHOWN = 3
_MOST = 8
"""So many places of a fault are named, and so many faults."""


def validate_model_input(
    data: Any,
    *,
    max_abs: float | None = 1000.0,
    dimensions: int | Collection[int] | None = 2,
    shape: Sequence[int | None] | None = None,
    dtype: torch.dtype | str | Collection[torch.dtype | str] | None = None,
    expected_range: tuple[float, float] | None = None,
    allow_nonfinite: bool = False,
) -> bool:
    """True if `data` may be given to a model; otherwise a `ValueError` says what was found, where, and what to do.

    `data` is a tensor or array, or a batch of them in dicts, lists, tuples or dataclasses: then the message names the
    key. Values have to be finite (unless `allow_nonfinite`), not above `max_abs` in magnitude, and within
    `expected_range`. A tensor has to have so many `dimensions` (one of several, if you give several), this `shape`
    (`None` or -1 for any size) and this `dtype`. `None` leaves a check out.

    What holds no floats (labels, token ids, masks) has no magnitude to be checked, and in a batch no dimensions, shape,
    dtype or range either. Tensors without values (on `meta`) are checked for the rest.
    """
    found = list(leaves(data))
    if not found:
        raise ValueError(
            f"Input of type {type(data).__name__} holds no tensor to check: give a tensor, an array, or a batch of them"
        )
    problems: list[str] = []
    with torch.no_grad():
        for path, tensor in found:
            alone = not path
            counts = tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized
            name = f"Input{path}"
            if alone or (counts and tensor.dim()):
                problems += _form(name, tensor, dimensions, shape, dtype)
            limits = expected_range if alone or counts else None
            problems += _values(name, tensor, max_abs if counts else None, limits, allow_nonfinite)
    if problems:
        more = [f"... and {len(problems) - _MOST} more"] if len(problems) > _MOST else []
        raise ValueError("\n".join([*problems[:_MOST], *more]))
    return True


def _form(name: str, tensor: Tensor, dimensions: Any, shape: Any, dtype: Any) -> list[str]:
    problems, sizes = [], shape_of(tensor)
    if dimensions is not None and shape is None:
        wanted = (dimensions,) if isinstance(dimensions, int) else tuple(dimensions)
        if tensor.dim() not in wanted:
            allowed = " or ".join(str(each) for each in wanted)
            problems.append(
                f"{name} must be {allowed}-dimensional and has {tensor.dim()} dimensions (its shape is"
                f" {in_words(sizes)}): reshape it, or pass dimensions={tensor.dim()} if that is right"
            )
    if shape is not None:
        fits = len(shape) == len(sizes) and all(
            want in (None, -1, size) for want, size in zip(shape, sizes, strict=True)
        )
        if not fits:
            dimensional = f" with {len(shape)} dimensions" if len(shape) != len(sizes) else ""
            problems.append(
                f"{name} must have the shape {in_words(shape)}{dimensional} and has {in_words(sizes)}:"
                " reshape or transpose it"
            )
    if dtype is not None:
        several = isinstance(dtype, Collection) and not isinstance(dtype, str)
        names = [str(each).removeprefix("torch.") for each in (dtype if several else [dtype])]
        if dtype_of(tensor) not in names:
            problems.append(
                f"{name} must have the dtype {' or '.join(names)} and has {dtype_of(tensor)}:"
                f" convert it with .to(torch.{names[0]})"
            )
    return problems


def _values(
    name: str, tensor: Tensor, max_abs: float | None, limits: tuple[float, float] | None, nonfinite: bool
) -> list[str]:
    values = readable(tensor)
    if values is None:
        local = getattr(tensor, "_local_tensor", tensor)
        if local.is_meta or type(local).__name__ in ("FakeTensor", "FunctionalTensor"):
            return []
        if not tensor.is_nested and not there(tensor):
            return [f"{name} has a shape ({in_words(shape_of(tensor))}) and no memory: it was freed"]
        return [f"{name} is a {type(tensor).__name__} whose values cannot be read: make it an ordinary tensor"]
    if not values.numel() or _is_fine(values, max_abs, limits):
        return []
    problems = []
    exact = values.is_floating_point() or values.is_complex()
    nan = torch.isnan(values) if exact else None
    inf = torch.isinf(values) if exact else None
    if nan is not None and inf is not None and not nonfinite:
        for bad, word, advice in (
            (
                nan & ~inf,
                "NaN",
                "look for a division by zero, the log or root of a negative number, or a missing value",
            ),
            (inf, "infinite", "look for a division by zero, the log of zero, or an overflow"),
        ):
            if bool(bad.any()):
                problems.append(f"{name} contains {word} values: {_where(tensor, values, bad)}; {advice}")
    finite = torch.isfinite(values) if exact else torch.ones_like(values, dtype=torch.bool)
    sizes = values.abs() if exact else values
    if max_abs is not None and bool((large := finite & (sizes > max_abs)).any()):
        problems.append(
            f"{name} values are too large: {_where(tensor, values, large)}, beyond {number(max_abs)};"
            " normalise them, or pass max_abs if they should be"
        )
    if limits is not None and not values.is_complex():
        low, high = limits
        outside = finite & ((values < low) | (values > high))
        if bool(outside.any()):
            problems.append(
                f"{name} values are outside the expected range {number(low)} to {number(high)}:"
                f" {_where(tensor, values, outside)}; scale them as the model was trained"
            )
    return problems


def _is_fine(values: Tensor, max_abs: float | None, limits: tuple[float, float] | None) -> bool:
    """One pass that most inputs are done with."""
    if values.is_complex() or values.dtype == torch.bool:
        return False
    low, high = (float(edge) for edge in torch.aminmax(values))
    if not (math.isfinite(low) and math.isfinite(high)):
        return False
    if limits is not None and (low < limits[0] or high > limits[1]):
        return False
    return max_abs is None or max(abs(low), abs(high)) <= max_abs


def _where(tensor: Tensor, values: Tensor, bad: Tensor) -> str:
    """`3 of 128 (first at [2, 5]: 1.2e+06, [3, 1]: -4e+03)`."""
    places = bad.nonzero()
    told = []
    for place in places[:_SHOWN].tolist():
        value = values[tuple(place)].item() if place else values.item()
        shown = number(value) if isinstance(value, (int, float)) else str(value)
        told.append(f"{_place(tensor, place)}: {shown}" if place or tensor.dim() else shown)
    many = int(bad.sum())
    if values.numel() == 1:
        return told[0]
    return f"{many:,} of {values.numel():,} ({'first ' if many > _SHOWN else ''}at {', '.join(told)})"


def _place(tensor: Tensor, place: list[int]) -> str:
    if tensor.layout == torch.sparse_coo and place:
        place = [*tensor._indices()[:, place[0]].tolist(), *place[1:]]
    elif tensor.layout != torch.strided or tensor.is_nested:
        return f"stored value {place}"
    return str(place)
