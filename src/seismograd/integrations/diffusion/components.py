"""The parts of a pipeline: parameters, dtypes, devices, memory, and what is wrong with them by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from seismograd.detectors.wording import names, parameter
from seismograd.records import Finding, Severity, rank
from seismograd.stats.tensors import all_finite, bad_counts, there

DENOISERS = ("unet", "transformer", "transformer_2", "prior", "decoder", "dit")
"""Names that the model of a pipeline has, which is called at every step."""


def parts_of(pipeline: Any) -> dict[str, Any]:
    """The components of a pipeline by their names; a module alone is its own component."""
    parts = getattr(pipeline, "components", None)
    if isinstance(parts, Mapping):
        return {str(name): part for name, part in parts.items() if part is not None}
    if isinstance(pipeline, nn.Module):
        return {"model": pipeline}
    raise TypeError(
        f"{type(pipeline).__name__} is no pipeline: give a diffusers pipeline, an object whose `components` are a dict,"
        " or a torch module"
    )


def models_of(pipeline: Any) -> dict[str, nn.Module]:
    """The components that are torch modules."""
    return {name: part for name, part in parts_of(pipeline).items() if isinstance(part, nn.Module)}


def denoiser_of(pipeline: Any) -> tuple[str, nn.Module] | None:
    """The model that is called at every step, if it can be told."""
    models = models_of(pipeline)
    return next(((name, models[name]) for name in DENOISERS if name in models), None)


def describe_component(part: Any) -> dict[str, Any]:
    """A component in numbers; one that is no module has its class alone."""
    told: dict[str, Any] = {"class": type(part).__name__}
    if not isinstance(part, nn.Module):
        return told
    parameters, buffers = list(part.parameters()), list(part.buffers())
    tensors = [*parameters, *buffers]
    dtypes = Counter(str(each.dtype).removeprefix("torch.") for each in parameters)
    return told | {
        "parameters": sum(each.numel() for each in parameters),
        "trainable_parameters": sum(each.numel() for each in parameters if each.requires_grad),
        "dtypes": dict(dtypes),
        "dtype": dtypes.most_common(1)[0][0] if dtypes else None,
        "devices": sorted({str(each.device) for each in tensors}),
        "memory_bytes": sum(each.numel() * each.element_size() for each in tensors),
        "training": part.training,
        "offload": offload_of(part),
        "hooks": sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in part.modules()),
    }


def offload_of(part: nn.Module) -> str | None:
    """The hook of accelerate's or diffusers' that moves a component to where it runs."""
    for each in part.modules():
        for held in ("_hf_hook", "_diffusers_hook"):
            hook = getattr(each, held, None)
            if hook is not None:
                return type(hook).__name__
    return None


def bad_parameters(name: str, part: nn.Module) -> Finding | None:
    """The finding about parameters and buffers of a component that are not finite."""
    tensors = dict([*part.named_parameters(), *part.named_buffers()])
    whole = {key: each for key, each in tensors.items() if each.is_floating_point() and not each.is_meta}
    with torch.no_grad():
        if all_finite(list(whole.values())):
            return None
        counts = {key: bad_counts(each) for key, each in whole.items() if there(each)}
    bad = {f"{name}.{key}": count for key, count in counts.items() if any(count)}
    if not bad:
        return None
    (first, (nans, infs)), many = next(iter(bad.items())), len(bad)
    return Finding(
        "nonfinite-parameter",
        Severity.CRITICAL,
        0,
        f"{many} parameter{'s' if many > 1 else ''} of `{name}` {'are' if many > 1 else 'is'} not finite: "
        f"{names(list(bad))}; `{first}` holds {nans} NaN and {infs} Inf.",
        rank(),
        parameter(first),
        {"component": name, "bad": {key: list(count) for key, count in bad.items()}, "series": name},
        (
            "Every image of this pipeline will be black or noise: load the weights again, from a checkpoint of before"
            " they broke.",
            "If they were cast to float16, look at the largest of the float32 weights: beyond 65504 they become Inf;"
            " use bfloat16.",
        ),
    )
