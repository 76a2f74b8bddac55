"""The numbers in any tensor, however odd: what can be looked at, and a summary in a few of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from seismograd.stats.tensors import there

_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def readable(tensor: Tensor) -> Tensor | None:
    """Its values as a strided tensor that can be computed with; `None` where it has none, or they cannot be read.

    Of a sparse tensor these are the stored values, of a nested one all of them in a row; quantised values and float8
    become floats. Of a `DTensor` it is the local part: reading the whole would need a collective.
    """
    try:
        tensor = tensor.detach()
        local = getattr(tensor, "_local_tensor", None)
        if isinstance(local, Tensor):
            tensor = local
        if tensor.is_meta or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
            return None
        if tensor.is_nested:
            return torch.cat([part.reshape(-1) for part in tensor.unbind()])
        if not there(tensor):
            return None
        if tensor.is_quantized:
            return tensor.dequantize()
        if tensor.layout == torch.sparse_coo:
            tensor = tensor._values()
        elif tensor.layout != torch.strided:
            mkldnn = tensor.layout == torch._mkldnn  # type: ignore[attr-defined]
            tensor = tensor.to_dense() if mkldnn else tensor.values()
        if tensor.is_floating_point() and tensor.element_size() == 1:  # float8 has no arithmetic
            tensor = tensor.float()
        elif tensor.dtype in _UNSIGNED:  # nor have these
            tensor = tensor.double()
        return tensor.resolve_conj().resolve_neg()
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def summary(tensor: Tensor) -> Any:
    """One number as it is; of many their shape, dtype, range and mean, and how many are not finite. Waits for it."""
    about: dict[str, Any] = {"shape": [int(size) for size in tensor.shape], "dtype": str(tensor.dtype)[6:]}
    if tensor.device.type != "cpu":
        about["device"] = str(tensor.device)
    try:
        seen = readable(tensor)
        if seen is None or not seen.numel():
            return about
        if seen.numel() == tensor.numel() == 1:
            value = seen.item()
            return value if not isinstance(value, complex) else str(value)
        if seen.is_complex():
            seen = torch.view_as_real(seen)
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
