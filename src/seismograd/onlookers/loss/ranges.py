"""Ranges of tensors, and what of a target lies outside of them: numbers that stay on the device."""

from __future__ import annotations

import torch
from torch import Tensor

_SAMPLE = 16_384
"""So many elements are looked at."""


def few(values: Tensor) -> Tensor:
    """Some of the elements, from all over the tensor."""
    if values.numel() <= _SAMPLE:
        return values
    if not values.is_contiguous():
        values = values.narrow(0, 0, max(1, _SAMPLE * values.shape[0] // values.numel()))
    return values.reshape(-1)[:: max(1, values.numel() // _SAMPLE)]


def extremes(values: Tensor, prefix: str = "") -> dict[str, Tensor]:
    """The lowest and the highest."""
    some = few(values)
    low, high = torch.aminmax(some.byte() if some.dtype == torch.bool else some)
    return {f"{prefix}low": low, f"{prefix}high": high}


def reach(target: Tensor, bounds: tuple[float | None, float | None]) -> dict[str, Tensor]:
    """How much of a target an output within these bounds cannot reach: by elements, and by variance."""
    target = few(target).float()
    gap = target - target.clamp(*bounds)
    missed, spread = gap.square().mean(), target.var(correction=0)
    return {
        "outside": (gap.abs() > 0.05 * spread.sqrt()).float().mean(),
        "unreachable": missed / (missed + spread).clamp_min(1e-30),
        **extremes(target, "target_"),
    }
