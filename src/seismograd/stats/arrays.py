"""Statistics of gradients and weights that are plain arrays, without torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seismograd.records import Reading, TensorStats

FloatArray = NDArray[np.float64]
Arrays = Mapping[str, Any] | Iterable[Any]
Layout = Literal["numpy", "torch"]


def to_array(value: Any) -> FloatArray:
    """`value` in float64: a torch tensor is copied to the host, complex numbers are taken apart."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.is_sparse:
            value = value.to_dense()
        value = (value.resolve_conj() if value.is_complex() else value.double()).numpy()
    array = np.asarray(value)
    if np.iscomplexobj(array):
        return np.ascontiguousarray(array, np.complex128).view(np.float64)
    return np.asarray(array, np.float64)


def named_arrays(arrays: Arrays) -> dict[str, FloatArray]:
    """The arrays by name, or by position ("0", "1", ...); what is None or empty was not measured and is left out."""
    pairs = arrays.items() if isinstance(arrays, Mapping) else ((str(at), array) for at, array in enumerate(arrays))
    named = {str(name): to_array(array) for name, array in pairs if array is not None}
    return {name: array for name, array in named.items() if array.size}


@dataclass
class GradientStats:
    """Statistics over all elements of a step's gradients.

    The norm is NaN or infinite when an element is. Everything else is over the finite elements: `max_val` and `min_val`
    are the largest and the smallest magnitude, zeros aside.
    """

    norm: float = 0.0
    max_val: float = 0.0
    min_val: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    num_zeros: int = 0
    num_nans: int = 0
    num_infs: int = 0
    total_elements: int = 0

    @classmethod
    def from_gradients(cls, gradients: Arrays) -> GradientStats:
        """The statistics of a list, or a dict, of arrays of any shape and dtype."""
        return cls._merge([cls._of(array) for array in named_arrays(gradients).values()])

    @classmethod
    def _of(cls, array: FloatArray) -> GradientStats:
        nans, infs = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        finite = array[np.isfinite(array)] if nans or infs else array.ravel()
        stats = cls(num_nans=nans, num_infs=infs, total_elements=array.size)
        if finite.size:
            sizes = np.abs(finite)
            stats.max_val = float(sizes.max())
            exponent = math.frexp(stats.max_val)[1]
            scaled = np.ldexp(finite, -exponent)  # by a power of two, so exact: no square over- or underflows
            stats.norm = _ldexp(math.sqrt(float(scaled @ scaled)), exponent)
            stats.mean = _ldexp(float(scaled.mean()), exponent)
            stats.std = _ldexp(float(scaled.std()), exponent)
            stats.num_zeros = finite.size - int(np.count_nonzero(finite))
            stats.min_val = float(sizes[sizes > 0].min(initial=stats.max_val))
        else:
            stats.max_val = stats.min_val = stats.mean = stats.std = math.nan
        if nans or infs:
            stats.norm = math.nan if nans else math.inf
        return stats

    @classmethod
    def _merge(cls, parts: Sequence[GradientStats]) -> GradientStats:
        if not parts:
            raise ValueError("no gradients were given: pass at least one array that has elements")
        whole = cls(
            norm=math.nan if any(part.num_nans for part in parts) else math.hypot(*(part.norm for part in parts)),
            max_val=max((part.max_val for part in parts if part._finite), default=math.nan),
            min_val=min((part.min_val for part in parts if part.min_val > 0), default=0.0),
            num_zeros=sum(part.num_zeros for part in parts),
            num_nans=sum(part.num_nans for part in parts),
            num_infs=sum(part.num_infs for part in parts),
            total_elements=sum(part.total_elements for part in parts),
        )
        if not whole._finite:
            whole.min_val = whole.mean = whole.std = math.nan
            return whole
        shares = [(part, part._finite / whole._finite) for part in parts if part._finite]
        whole.mean = math.fsum(share * part.mean for part, share in shares)
        spreads = [math.hypot(part.std, part.mean - whole.mean) * math.sqrt(share) for part, share in shares]
        whole.std = math.hypot(*spreads)
        return whole

    @property
    def _finite(self) -> int:
        return self.total_elements - self.num_nans - self.num_infs

    def is_healthy(self) -> tuple[bool, list[str]]:
        """Whether nothing is wrong by absolute limits, and what is. The detectors judge relative to the run instead."""
        issues = []
        if self.num_nans:
            issues.append(f"NaN gradients: {self.num_nans}")
        if self.num_infs:
            issues.append(f"Inf gradients: {self.num_infs}")
        if not issues and not self.norm <= 1000:
            issues.append(f"Norm too large: {self.norm:.2f}")
        if self.norm < 1e-8:
            issues.append(f"Norm too small: {self.norm:.2e}")
        return not issues, issues


def _ldexp(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def array_reading(
    step: int, loss: float, gradients: Arrays, learning_rate: float, val_loss: float | None = None
) -> tuple[Reading, GradientStats]:
    """One step of a loop that is not torch's, as the record that detectors check, and its gradients' statistics."""
    parts = {name: GradientStats._of(array) for name, array in named_arrays(gradients).items()}
    stats = GradientStats._merge(list(parts.values()))
    scalars = {"loss": float(loss), "grad/norm": stats.norm, "lr/0": float(learning_rate)}
    if val_loss is not None:
        scalars["val_loss"] = float(val_loss)
    columns = {
        "norm": [part.norm for part in parts.values()],
        "max": [part.max_val for part in parts.values()],
        "mean": [part.mean for part in parts.values()],
        "zeros": [part.num_zeros / part.total_elements for part in parts.values()],
    }
    return Reading(step, scalars, {"gradient": TensorStats(tuple(parts), columns)}), stats


def clip_gradients(gradients: Iterable[Any], max_norm: float = 1.0) -> tuple[list[NDArray[Any]], float]:
    """The gradients scaled down to a global norm of at most `max_norm`, and their norm before.

    No scale mends gradients whose norm is not finite: they come back as they are, and the norm says so.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm is {max_norm}: it must be above zero")
    arrays = [np.asarray(gradient) for gradient in gradients]
    norm = math.hypot(*(GradientStats._of(to_array(array)).norm for array in arrays if array.size))
    if not max_norm < norm < math.inf:
        return arrays, norm
    return [_scaled(array, max_norm / norm) for array in arrays], norm


def _scaled(array: NDArray[Any], factor: float) -> NDArray[Any]:
    wide = array * np.float64(factor)  # a half-precision factor could round to zero
    return np.asarray(wide, array.dtype if np.issubdtype(array.dtype, np.inexact) else np.float64)


def check_initialization(weights: Any, *, layout: Layout = "numpy") -> dict[str, Any]:
    """Whether fresh weights have the spread that keeps a signal's size from layer to layer (He: sqrt(2 / fan-in)).

    `weights` is a list or a dict of arrays, or a torch model. Of a model all layers are checked whose layout is known:
    linear and convolution layers (transposed ones, too), recurrent ones (the gates stand above each other, and each
    adds up inputs and state), the projections of attention, and embeddings, which have no fan-in.

    The last axis of a NumPy weight counts its outputs, `(fan_in, fan_out)`; the first axis of a torch weight does,
    `(fan_out, fan_in, ...)`: torch tensors are read so by themselves, arrays with `layout="torch"`. Biases and other
    weights with one axis have no fan-in and pass. The status is `ok`, `too_small`, `too_large` or `nonfinite`.
    """
    if layout not in ("numpy", "torch"):
        raise ValueError(f"layout is {layout!r}: use 'numpy' or 'torch'")
    if hasattr(weights, "named_modules"):
        layers = [_layer(name, weight, fan_in) for name, weight, fan_in in _module_weights(weights)]
    else:
        pairs = weights.items() if isinstance(weights, Mapping) else enumerate(weights)
        layers = [_layer(name, weight, _fan_in(weight, layout)) for name, weight in pairs]
    return {"layers": layers, "all_ok": all(layer["status"] == "ok" for layer in layers)}


def _layer(name: object, weight: Any, fan_in: int) -> dict[str, Any]:
    values = to_array(weight)
    expected = math.sqrt(2.0 / fan_in) if fan_in else None
    stats = GradientStats._of(values)
    status = "ok"
    if stats.num_nans or stats.num_infs:
        status = "nonfinite"
    elif expected is not None and stats.std < 0.1 * expected:
        status = "too_small"
    elif expected is not None and stats.std > 10 * expected:
        status = "too_large"
    return {"layer": name, "expected_std": expected, "actual_std": stats.std, "status": status}


def _fan_in(weight: Any, layout: Layout) -> int:
    shape = tuple(np.shape(weight)) if not hasattr(weight, "detach") else tuple(weight.shape)
    if len(shape) < 2:
        return 0
    return math.prod(shape[1:] if layout == "torch" or hasattr(weight, "detach") else shape[:-1])


def _module_weights(model: Any) -> Iterable[tuple[str, Any, int]]:
    """Name, weight and fan-in of every layer whose layout is known; 0 where it has none, as an embedding."""
    for name, module in model.named_modules():
        dot = f"{name}." if name else ""
        weight: Any = getattr(module, "weight", None)
        if hasattr(weight, "shape") and (hasattr(module, "in_features") or hasattr(module, "in_channels")):
            fan_in = _fan_in(weight, "torch")
            if getattr(module, "transposed", False):  # its weight is (in, out / groups, ...)
                fan_in = weight.shape[0] // module.groups * math.prod(weight.shape[2:])
            yield f"{dot}weight", weight, fan_in
        elif hasattr(weight, "shape") and hasattr(module, "num_embeddings"):
            yield f"{dot}weight", weight, 0
        elif hasattr(module, "hidden_size"):
            yield from _recurrent_weights(dot, dict(module.named_parameters(recurse=False)))
        elif hasattr(module, "embed_dim"):
            for part, one in module.named_parameters(recurse=False):
                if part.endswith("proj_weight"):  # in_proj: queries, keys and values above each other
                    yield f"{dot}{part}", one, int(one.shape[1])


def _recurrent_weights(dot: str, weights: Mapping[str, Any]) -> Iterable[tuple[str, Any, int]]:
    """The matrices of recurrent layers and cells: what comes in and the state are added up, so both count."""
    for part, weight in weights.items():
        other = (
            part.replace("weight_ih", "weight_hh") if "weight_ih" in part else part.replace("weight_hh", "weight_ih")
        )
        if other != part and other in weights:
            yield f"{dot}{part}", weight, int(weight.shape[1] + weights[other].shape[1])
        elif part.startswith("weight_hr"):  # the projection of the state
            yield f"{dot}{part}", weight, int(weight.shape[1])
