"""Statistics of torch tensors, computed where the tensors lie and left there: nothing here waits for a device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_DOUBLE = (torch.float64, torch.complex128)


def dense(tensor: Tensor) -> Tensor:
    """The stored values of `tensor` as a dense real tensor with the same norm. Of a `DTensor` the local part:
    reading the whole would need a collective, and a debugger must not be able to hang a job."""
    tensor = tensor.detach()
    if hasattr(tensor, "_local_tensor"):
        tensor = tensor._local_tensor
    if tensor.layout != torch.strided:
        tensor = tensor.coalesce().values() if tensor.is_sparse else tensor.values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor


def there(tensor: Tensor) -> bool:
    """Whether the tensor has its memory: sharding frees that of parameters it has gathered, and reading it crashes."""
    if hasattr(tensor, "_local_tensor"):
        tensor = tensor._local_tensor
    if tensor.layout != torch.strided or not tensor.numel():
        return True
    try:
        return tensor.untyped_storage().size() > 0
    except NotImplementedError:  # a wrapper without memory of its own
        return False


def norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The L2 norm of each tensor as a 0-d tensor, accumulated in fp32 or wider. Sparse ones by their values."""
    plain = True
    for tensor in tensors:  # one look at each: the fused call refuses sparse tensors and overflows in fp16
        if tensor.dtype != torch.float32 or tensor.layout != torch.strided or hasattr(tensor, "_local_tensor"):
            plain = False
            break
    if plain:
        return list(torch._foreach_norm(list(tensors), 2.0)) if tensors else []
    groups: dict[torch.dtype, list[int]] = {}
    values: list[Tensor] = []
    for at, tensor in enumerate(tensors):
        value = dense(tensor)
        values.append(value)
        groups.setdefault(value.dtype, []).append(at)
    result: list[Tensor] = [values[0]] * len(values)
    for dtype, places in groups.items():
        wide = torch.float64 if dtype in _DOUBLE else torch.float32
        for at, norm in zip(places, _wide_norms([values[at] for at in places], wide), strict=True):
            result[at] = norm
    return result


def _wide_norms(values: list[Tensor], wide: torch.dtype) -> Sequence[Tensor]:
    try:
        return torch._foreach_norm(values, 2.0, dtype=wide)
    except TypeError:  # torch before it took a dtype
        return [torch.linalg.vector_norm(value, dtype=wide) for value in values]


def total(tensors: Sequence[Tensor]) -> list[float]:
    """The norms of `tensors` on the host, device by device: one sync each."""
    by_device: dict[torch.device, list[Tensor]] = {}
    for norm in norms(tensors):
        by_device.setdefault(norm.device, []).append(norm.float() if norm.device.type == "mps" else norm.double())
    return [value for found in by_device.values() for value in torch.stack(found).tolist()]


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether everything is finite, as far as norms tell: one sync a device. What overflows a norm counts as not."""
    return all(math.isfinite(value) for value in total([tensor for tensor in tensors if there(tensor)]))


def gradient_norm(parameters: Iterable[Tensor]) -> float:
    """The global L2 norm of the gradients that `parameters` hold, exact for what overflows fp32 too."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    with torch.no_grad():
        norm = math.sqrt(sum(value * value for value in total(gradients)))
        if math.isinf(norm) and not any(sum(bad_counts(gradient)) for gradient in gradients):
            norm = math.hypot(*(exact_norm(gradient) for gradient in gradients))
    return norm


def exact_norm(tensor: Tensor) -> float:
    """The L2 norm in float64, scaled so that no finite value overflows. Waits for the device."""
    value = dense(tensor).to(torch.float64) if tensor.device.type != "mps" else dense(tensor).cpu().double()
    if not value.numel():
        return 0.0
    largest = float(value.abs().max())
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * float(torch.linalg.vector_norm(value / largest))


def bad_counts(tensor: Tensor) -> tuple[int, int]:
    """How many elements are NaN and how many infinite, element by element. Waits for the device."""
    value = dense(tensor)
    if not value.is_floating_point():
        return (0, 0)
    if value.dtype.itemsize == 1:  # torch computes nothing in float8
        value = value.float()
    counts = torch.stack([value.isnan().sum(), value.isinf().sum()]).tolist()
    return (int(counts[0]), int(counts[1]))


_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
_KEPT_BITS = (1 << 52) - 1


def bit_sums(tensors: Sequence[Tensor]) -> list[Tensor]:
    """A sum over the bits of each tensor, still on its device: alike wherever they are, to the bit, and in whatever
    order it is added up. Of 52 bits, which a float64 holds."""
    totals: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for at, tensor in enumerate(tensors):
        value = dense(tensor).contiguous().reshape(-1)
        length, start = value.numel() * value.itemsize, value.storage_offset() * value.itemsize
        word = next(size for size in _WORDS if length % size == 0 and start % size == 0)
        total = value.view(_WORDS[word]).sum(dtype=torch.int64) if length else value.new_zeros((), dtype=torch.int64)
        totals.setdefault(value.device, []).append((at, total))
    result: list[Tensor] = [torch.empty(())] * len(tensors)
    for device, found in totals.items():
        together = torch.stack([total for _, total in found])
        kept = (together & 0xFFFFFF).float() if device.type == "mps" else (together & _KEPT_BITS).double()
        for (at, _), one in zip(found, kept.unbind(), strict=True):
            result[at] = one
    return result


def largest(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The largest magnitude in each tensor. Two vectorised passes: the infinity norm is ten times slower on a CPU."""
    return [_largest(dense(tensor)) for tensor in tensors]


def _largest(value: Tensor) -> Tensor:
    if not value.numel():
        return torch.zeros((), dtype=torch.float32, device=value.device)
    low, high = torch.aminmax(value)
    return torch.maximum(low.abs(), high.abs())


def means(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The mean of each tensor, over all its elements and not only the stored ones."""
    result = []
    for tensor in tensors:
        value = dense(tensor)
        wide = torch.float64 if value.dtype in _DOUBLE else torch.float32
        result.append(value.sum(dtype=wide) / max(1, tensor.numel()))
    return result


def zero_shares(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The share of exact zeros in each tensor."""
    result = []
    for tensor in tensors:
        value = dense(tensor)
        stored = max(1, tensor.numel() * (2 if tensor.is_complex() else 1))
        result.append(1 - torch.count_nonzero(value) / stored)
    return result
