"""One tensor in words and numbers, whatever it is: asked for by hand, so it may wait for the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from seismograd.stats.tensors import there

_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
_HOLLOW = ("FakeTensor", "FunctionalTensor")
_WHOLE = (torch.strided, torch._mkldnn)  # type: ignore[attr-defined]

_AT_ONCE = 1 << 20
"""Elements that are looked at together: a description never needs a copy of a large tensor."""


@dataclass(frozen=True)
class TensorInfo:
    """What a tensor is and what it holds. Statistics are over the finite values; `None` where there are none to see."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    layout: str
    requires_grad: bool
    numel: int
    memory_bytes: int
    """Of the values it holds: stored ones if it is sparse, one for all if it is expanded; 0 without memory."""
    has_nan: bool | None = None
    has_inf: bool | None = None
    num_nans: int | None = None
    num_infs: int | None = None
    num_zeros: int | None = None
    mean_value: float | None = None
    std_value: float | None = None
    min_value: float | None = None
    max_value: float | None = None
    norm: float | None = None
    """The L2 norm of the finite values."""
    note: str | None = None
    """What the reader should know about how it was read, or why it could not be."""

    @property
    def is_finite(self) -> bool:
        """Whether no NaN and no Inf was seen."""
        return not (self.has_nan or self.has_inf)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(tensor: Tensor, name: str = "tensor") -> TensorInfo:
    """What `tensor` is, and the statistics of its values as far as it has any that can be read."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name!r} is a {type(tensor).__name__}, not a tensor: give a torch.Tensor")
    if is_lazy(tensor):
        kind = (str(tensor.dtype), str(tensor.device), str(tensor.layout), tensor.requires_grad)
        return TensorInfo(name, (), *kind, 0, 0, note="it gets its shape and values at the first forward pass")
    with torch.no_grad():
        about: dict[str, Any] = {
            "name": name,
            "shape": shape_of(tensor),
            "dtype": str(tensor.dtype),
            "device": str(tensor.device),
            "layout": str(tensor.layout),
            "requires_grad": tensor.requires_grad,
            "numel": tensor.numel(),
            "memory_bytes": 0,
        }
        try:
            values = readable(tensor)
            if values is not None:
                about |= {"memory_bytes": _memory(tensor, values), **_statistics(values.reshape(-1))}
        except (RuntimeError, NotImplementedError, TypeError):  # a subclass that has no such op
            values = None
        return TensorInfo(**about, note=_note(tensor, values))


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """A nested tensor has sizes that are no number: -1."""
    if tensor.is_nested and tensor.layout == torch.strided:
        return (tensor.size(0), *[-1] * (tensor.dim() - 1))
    return tuple(size if type(size) is int else -1 for size in tensor.shape)


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
        if tensor.is_meta or type(tensor).__name__ in _HOLLOW:
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


def _note(tensor: Tensor, values: Tensor | None) -> str | None:
    if values is None:
        hollow = tensor.is_meta or type(tensor).__name__ in _HOLLOW
        return "it has a shape and no values" if hollow else "its values cannot be read, or its memory was freed"
    if hasattr(tensor, "_local_tensor"):
        return "the part on this rank"
    if tensor.is_complex():
        return "statistics are of magnitudes"
    if tensor.is_quantized:
        return "statistics are of what the integers stand for"
    return None if tensor.is_nested or tensor.layout in _WHOLE else "stored values only"


def _memory(tensor: Tensor, values: Tensor) -> int:
    """A copy that can be computed with may be wider than what is held."""
    size = values.numel() * tensor.element_size()
    if tensor.layout == torch.strided and not tensor.is_nested and not hasattr(tensor, "_local_tensor"):
        return min(size, tensor.untyped_storage().nbytes())
    return size


def _statistics(values: Tensor) -> dict[str, Any]:
    nans = infs = zeros = count = 0
    low, high, mean, spread, norm = math.inf, -math.inf, 0.0, 0.0, 0.0
    for part in _parts(values):
        counts = torch.stack([part.isnan().sum(), part.isinf().sum(), (part == 0).sum()])
        nan, inf, zero = (int(each) for each in counts.tolist())
        nans, infs, zeros = nans + nan, infs + inf, zeros + zero
        finite = part[part.isfinite()] if nan or inf else part
        if not finite.numel():
            continue
        least, most = (float(edge) for edge in torch.aminmax(finite))
        low, high = min(low, least), max(high, most)
        scale = max(abs(least), abs(most)) or 1.0
        scaled = finite / scale  # so that no square overflows
        of_part = float(scaled.mean()) * scale
        within = float((scaled - scaled.mean()).square().sum())
        # Chan's update: the mean and the spread of two parts together.
        total, apart = count + finite.numel(), of_part - mean
        spread = math.hypot(spread, math.sqrt(within) * scale, apart * math.sqrt(count * finite.numel() / total))
        mean += apart * finite.numel() / total
        norm = math.hypot(norm, math.sqrt(float(scaled.square().sum())) * scale)
        count = total
    found: dict[str, Any] = {
        "has_nan": nans > 0,
        "has_inf": infs > 0,
        "num_nans": nans,
        "num_infs": infs,
        "num_zeros": zeros,
    }
    if count:
        found |= {
            "mean_value": mean,
            "std_value": spread / math.sqrt(count),
            "min_value": low,
            "max_value": high,
            "norm": norm,
        }
    return found


def _parts(values: Tensor) -> Iterator[Tensor]:
    """The values piece by piece, as real numbers wide enough to add up."""
    for start in range(0, values.numel(), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        if part.is_complex():
            part = _magnitudes(part)
        yield part.to(torch.float32 if part.device.type == "mps" else torch.float64)


def _magnitudes(part: Tensor) -> Tensor:
    """NaN where either half is one, though the other be infinite."""
    halves = torch.view_as_real(part.to(torch.complex128) if part.device.type != "mps" else part)
    sizes = torch.hypot(halves[..., 0], halves[..., 1])
    return torch.where(halves.isnan().any(-1), torch.full_like(sizes, math.nan), sizes)
