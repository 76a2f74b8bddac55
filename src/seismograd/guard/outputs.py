"""`detect_model_anomalies`: one forward pass that leaves no trace, and what is odd about what comes out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from seismograd.costs import call
from seismograd.detectors.wording import number
from seismograd.guard.leaves import leaves
from seismograd.patches import muted
from seismograd.replay.surroundings import Randomness, generators_of
from seismograd.stats.describe import readable

_MAIN = ("logits", "prediction", "predictions", "preds", "output", "outputs", "sample", "last_hidden_state")


def detect_model_anomalies(
    model: nn.Module,
    data: Any,
    *,
    expected_range: tuple[float, float] | None = None,
    uniform_std: float = 1e-6,
) -> list[str]:
    """What is odd about the model's answer to `data`: NaN, infinite values, the same answer to every sample, and values
    outside of `expected_range`. Empty if nothing is.

    There is no range by default, since logits have none: give `(0, 1)` for probabilities. Answers are uniform if they
    differ by less than `uniform_std` (a standard deviation) from sample to sample, and the samples do differ.

    `data` is what the model takes: a tensor, a tuple of arguments, a dict of named ones. The model stays as it was, in
    its mode, with its buffers and gradients; no random number is drawn.
    """
    if any(is_lazy(parameter) for parameter in model.parameters()):
        model = copy.deepcopy(model)  # a call would give them their shapes
    with muted(), torch.no_grad(), _unchanged(model):
        output = call(model, data)
    found = [(path, values) for path, tensor in leaves(output) if (values := _floats(tensor)) is not None]
    anomalies: list[str] = []
    with torch.no_grad():
        for path, values in found:
            anomalies += _nonfinite(f"Model output{path}", values)
        main = _main(found)
        if main is not None:
            path, values = main
            anomalies += _outside(f"Model output{path}", values, expected_range)
            if _is_uniform(values, uniform_std) and _differ(data, values.shape[0]):
                anomalies.append(
                    f"Model predictions are uniform: `output{path}` is the same for all {values.shape[0]} samples, to"
                    f" {number(uniform_std)}"
                )
    return anomalies


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Puts back the buffers and all generators."""
    buffers = [
        (module, name, buffer, buffer.clone() if buffer is not None and not buffer.is_meta else None)
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    before_it = Randomness.now(own=generators_of(model.modules()))
    try:
        yield
    finally:
        before_it.restore()
        for module, name, buffer, before in buffers:
            if module._buffers[name] is not buffer:
                module._buffers[name] = buffer
            if buffer is not None and before is not None:
                buffer.data.copy_(before)  # by `data`: a backward that still needs the buffer sees no change


def _floats(tensor: Tensor) -> Tensor | None:
    values = readable(tensor)
    if values is None or not values.numel() or not (values.is_floating_point() or values.is_complex()):
        return None
    return values


def _nonfinite(name: str, values: Tensor) -> list[str]:
    told = []
    nan, inf = torch.isnan(values), torch.isinf(values)
    for word, bad in (("NaN", nan & ~inf), ("infinite", inf)):
        many = int(bad.sum())
        if many:
            first = bad.nonzero()[0].tolist()
            place = f", first at {first}" if first else ""
            mask = word == "infinite" and not values.is_complex() and bool((values[bad] < 0).all())
            hint = " (all are -Inf: right if it is a mask)" if mask else ""
            told.append(f"{name} contains {word} values: {many:,} of {values.numel():,}{place}{hint}")
    return told


def _main(found: list[tuple[str, Tensor]]) -> tuple[str, Tensor] | None:
    """The answer itself, in an output with several parts."""
    answers = [(path, values) for path, values in found if values.dim() or not path]
    for word in _MAIN:
        for path, values in answers:
            if path in (f"['{word}']", f".{word}"):
                return path, values
    return answers[0] if answers else None


def _outside(name: str, values: Tensor, limits: tuple[float, float] | None) -> list[str]:
    if limits is None or values.is_complex():
        return []
    low, high = limits
    outside = torch.isfinite(values) & ((values < low) | (values > high))
    many = int(outside.sum())
    if not many:
        return []
    seen = values[torch.isfinite(values)]
    return [
        f"{name} outside expected range {number(low)} to {number(high)}: {many:,} of {values.numel():,} values, the"
        f" lowest {number(float(seen.min()))}, the highest {number(float(seen.max()))}"
    ]


def _is_uniform(values: Tensor, limit: float) -> bool:
    """Whether every part of the answer is the same for all samples."""
    if values.dim() == 0 or values.shape[0] < 2 or values.is_complex():
        return False
    wide = values.float() if values.element_size() < 4 else values
    return bool(torch.isfinite(wide).all()) and float(wide.std(0).max()) < limit


def _differ(data: Any, samples: int) -> bool:
    """Whether the samples are not all the same, as far as can be seen."""
    seen = [values for _, tensor in leaves(data) if (values := readable(tensor)) is not None]
    batched = [values for values in seen if values.dim() and values.shape[0] == samples]
    return not batched or any(bool((values[1:] != values[:1]).any()) for values in batched)
