"""The numbers in any tensor, however odd: what can be looked at, and a summary in a few of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from seismograd.stats.tensors import there


def numbers(tensor: Tensor) -> Tensor | None:
    """Its numbers as a dense, real tensor, bool and integers as they are; `None` where it has none to look at.

    Sparse ones are filled up, complex ones get a last axis of two, quantised ones and float8 become floats. Of a
    `DTensor` it is the local part: reading the whole would need a collective.
    """
    try:
        tensor = tensor.detach()
        local = getattr(tensor, "_local_tensor", None)
        if isinstance(local, Tensor):
            tensor = local
        if tensor.is_meta or tensor.is_nested or not there(tensor):
            return None
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        if tensor.is_floating_point() and tensor.element_size() == 1:  # float8 has no arithmetic
            tensor = tensor.float()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return tensor


def summary(tensor: Tensor) -> Any:
    """One number as it is; of many their shape, dtype, range and mean, and how many are not finite. Waits for it."""
    about: dict[str, Any] = {"shape": [int(size) for size in tensor.shape], "dtype": str(tensor.dtype)[6:]}
    if tensor.device.type != "cpu":
        about["device"] = str(tensor.device)
    try:
        seen = numbers(tensor)
        if seen is None or not seen.numel():
            return about
        if seen.numel() == 1:
            return seen.item()
        wide = seen.float() if seen.element_size() < 8 else seen.to("cpu", torch.float64)
        finite = wide[torch.isfinite(wide)]
        bad = wide.numel() - finite.numel()
        if finite.numel():
            about |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
        if bad:
            nan = int(torch.isnan(wide).sum())
            about |= {"nan": nan, "inf": bad - nan}
    except (RuntimeError, NotImplementedError, TypeError):  # a kind of tensor that does not even count
        pass
    return {name: value for name, value in about.items() if not isinstance(value, float) or math.isfinite(value)}
