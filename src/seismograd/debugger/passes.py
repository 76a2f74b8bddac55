"""A forward pass layer by layer, and a backward pass, as they happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from seismograd.onlookers.graph import Graph
from seismograd.onlookers.nested import tensors_in
from seismograd.records import Finding, Severity, Where, rank
from seismograd.stats.describe import describe, shape_of

MOST_LAYERS = 10_000
"""So many calls of layers are described in one pass."""


@contextmanager
def described(model: nn.Module, into: list[dict[str, Any]]) -> Iterator[None]:
    """Each call of a layer inside this block is described in `into`, in the order in which they end.

    A layer is a module without modules of its own, or with parameters of its own. The hooks are gone afterwards.
    """
    inner: nn.Module = getattr(model, "_orig_mod", model)
    handles: list[Any] = []
    began: dict[int, list[float]] = {}

    def starts(module: nn.Module, _args: Any) -> None:
        began.setdefault(id(module), []).append(perf_counter())

    def ended(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            seconds = perf_counter() - began[id(module)].pop()
            if len(into) < MOST_LAYERS and not torch.compiler.is_compiling():
                into.append(_layer(name, module, (args, kwargs), output, seconds))

        return hook

    try:
        for name, module in inner.named_modules():
            if not any(module.children()) or any(True for _ in module.parameters(recurse=False)):
                handles.append(module.register_forward_pre_hook(starts))
                handles.append(module.register_forward_hook(ended(name), with_kwargs=True))
        with _eagerly(model):
            yield
    finally:
        for handle in handles:
            handle.remove()


def _eagerly(model: nn.Module) -> Any:
    """A compiled model runs uncompiled here: hooks would have it compiled anew."""
    stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    return stance("force_eager") if stance is not None and hasattr(model, "_orig_mod") else nullcontext()


def _layer(name: str, module: nn.Module, given: Any, output: Any, seconds: float) -> dict[str, Any]:
    first_in, first_out = next(tensors_in(given), None), next(tensors_in(output), None)
    about: dict[str, Any] = {
        "name": name,
        "type": type(module).__name__,
        "input_shape": None if first_in is None else list(shape_of(first_in)),
        "output_shape": None,
        "duration": seconds,
    }
    if first_out is not None:
        info = describe(first_out, name)
        about |= {
            "output_shape": list(info.shape),
            "dtype": info.dtype,
            "mean": info.mean_value,
            "std": info.std_value,
            "min": info.min_value,
            "max": info.max_value,
            "zeros": None if not info.numel or info.num_zeros is None else info.num_zeros / info.numel,
            "num_nans": info.num_nans,
            "num_infs": info.num_infs,
            "memory_bytes": info.memory_bytes,
        }
    return about


def first_bad(layers: Sequence[Mapping[str, Any]], step: int) -> Finding | None:
    """The finding about the first layer whose output is not finite."""
    bad = next((layer for layer in layers if layer.get("num_nans") or layer.get("num_infs")), None)
    if bad is None:
        return None
    return Finding(
        "nonfinite-activation",
        Severity.CRITICAL,
        step,
        f"The first layer whose output is not finite is `{bad['name']}` ({bad['type']}): {bad['num_nans']} NaN and "
        f"{bad['num_infs']} Inf.",
        rank(),
        Where(module=bad["name"] or None, phase="forward"),
        {"layer": dict(bad)},
        ("Look at what goes into it (`forward_layers`), and at its parameters (`check_model_parameters`).",),
    )


def leaves_of(loss: Tensor) -> list[Tensor]:
    """The tensors that a backward of `loss` gives gradients to, once each."""
    with torch.no_grad():
        return list({id(leaf): leaf for leaf in Graph([loss], []).leaves}.values())
