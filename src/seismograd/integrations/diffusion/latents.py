"""Latents from timestep to timestep: their statistics, and when they leave the range that noise and data have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from seismograd.detectors.wording import number
from seismograd.integrations.diffusion.schedulers import expected_std, predicts, std_without_prediction
from seismograd.records import Finding, Severity, Where, rank
from seismograd.stats.describe import readable

TOO_LARGE = 5.0
"""So many times the standard deviation that noise and data have together: no guidance that is of use goes there."""

NEAR_THE_END = 0.125
"""This share of the dtype's largest number: the next layer's sums are beyond it."""


def statistics(tensor: Tensor, *more: Any) -> tuple[dict[str, Any], list[float | None]]:
    """Mean, std, min and max of the finite values, and whether all are; and further scalars of the same device.

    The device is waited for once.
    """
    values = readable(tensor)
    extra = [None if one is None else torch.as_tensor(one).detach().reshape(-1)[:1] for one in more]
    if values is None or not values.numel():
        return {"has_nan": False, "has_inf": False, "finite_fraction": None}, [
            None if one is None else float(one) for one in extra
        ]
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    with torch.no_grad():
        if values.is_complex():
            values = torch.view_as_real(values)
        values = values.detach().to(wide)
        finite = torch.isfinite(values)
        count = finite.sum().clamp_min(1)
        mean = torch.where(finite, values, 0).sum() / count
        spread = torch.where(finite, values - mean, 0).square().sum() / count
        low = torch.where(finite, values, torch.inf).amin()
        high = torch.where(finite, values, -torch.inf).amax()
        packed = [mean, spread.sqrt(), low, high, values.isnan().sum(), values.isinf().sum()]
        others = [one.to(values.device, wide) for one in extra if one is not None]
        numbers = torch.cat([torch.stack([one.to(wide) for one in packed]), *others]).tolist()  # the only sync
    size, (nans, infs) = values.numel(), numbers[4:6]
    whole = nans + infs < size
    told: dict[str, Any] = {
        "mean": numbers[0] if whole else None,
        "std": numbers[1] if whole else None,
        "min": numbers[2] if whole else None,
        "max": numbers[3] if whole else None,
        "has_nan": nans > 0,
        "has_inf": infs > 0,
        "finite_fraction": 1 - (nans + infs) / size,
    }
    rest = iter(numbers[6:])
    return told, [None if one is None else next(rest) for one in extra]


def nonfinite_latents(record: Mapping[str, Any], before: Mapping[str, Any] | None) -> Finding | None:
    """The finding about latents that are not finite, without a component: who made them is not known here."""
    if not (record["has_nan"] or record["has_inf"]):
        return None
    step, share = record["step"], 1 - (record["finite_fraction"] or 0.0)
    kind = " and ".join(name for name, held in (("NaN", record["has_nan"]), ("Inf", record["has_inf"])) if held)
    last = (
        ""
        if before is None or before["std"] is None
        else f" At step {before['step']} their std was {number(before['std'])}."
    )
    return Finding(
        "nonfinite-activation",
        Severity.CRITICAL,
        step,
        f"The latents hold {kind} ({share:.3g} of them) after step {step}{_at(record)}.{last}",
        rank(),
        Where(phase="forward"),
        {name: record[name] for name in ("timestep", "has_nan", "has_inf", "finite_fraction")},
        (
            "Run the pipeline inside `with debugger.watch_pipeline(pipe):`: it names the component, the layer and the"
            " op.",
        ),
    )


def explosion(
    record: Mapping[str, Any], first: Mapping[str, Any], scheduler: Any, dtype: torch.dtype
) -> Finding | None:
    """The finding about latents that are far larger than noise and data together, or near the end of their dtype."""
    std, step = record["std"], record["step"]
    if std is None:
        return None
    largest = max(abs(record["min"]), abs(record["max"]))
    expected = expected_std(scheduler, step)
    usual = max(expected, 0.0) if expected is not None else first["std"]
    end = torch.finfo(dtype).max if dtype.is_floating_point else float("inf")
    near = dtype == torch.float16 and largest > NEAR_THE_END * end
    if not near and (usual is None or usual <= 0 or std <= TOO_LARGE * usual):
        return None
    name = str(dtype).removeprefix("torch.")
    of = "the first ones" if expected is None else f"noise and data at this step of {type(scheduler).__name__}"
    message = f"The latents have a standard deviation of {number(std)} after step {step}{_at(record)},"
    message += f" where {of} have about {number(usual)}"
    message += f"; the largest is {number(largest)}, near the end of {name} ({number(end)})." if near else "."
    predicted = predicts(scheduler)
    unpredicted = std_without_prediction(scheduler)
    untrained = not near and unpredicted is not None and std <= TOO_LARGE * unpredicted
    if untrained:
        message += " A model that has not learned yet does that, too."
    advice = [
        "Check that the model predicts what the scheduler takes"
        + (f" (prediction_type={predicted!r})" if predicted else "")
        + ", and that it is trained: without either, latents grow at every step.",
        "Lower guidance_scale, or set guidance_rescale (0.7) where the pipeline has it.",
    ]
    if near:
        advice.append("Use bfloat16, which has float32's range: `pipe.to(torch.bfloat16)`.")
    return Finding(
        "latent-explosion",
        Severity.INFO if untrained else Severity.WARNING,
        step,
        message,
        rank(),
        Where(phase="forward"),
        {
            "std": std,
            "expected": usual,
            "limit": TOO_LARGE * usual,
            "without_prediction": unpredicted,
            "largest": largest,
            "dtype": name,
            "timestep": record["timestep"],
        },
        tuple(advice),
    )


def one_colour(component: str, image: Tensor, step: int) -> Finding | None:
    """The finding about a decoded image that is one colour all over once it has 8 bits."""
    values = readable(image)
    if values is None or values.ndim < 3 or not values.numel():
        return None
    with torch.no_grad():
        bits = (values.detach().float() / 2 + 0.5).clamp(0, 1) * 255
        pixels = bits.flatten(2)
        flat = ((pixels.amax(-1) - pixels.amin(-1)) < 1).all(-1)
        told = torch.cat([flat.to(torch.float32), bits.mean(tuple(range(1, bits.ndim)))]).tolist()
    at = [number_ for number_, constant in enumerate(told[: len(flat)]) if constant]
    if not at:
        return None
    shade = told[len(flat) + at[0]]
    word = "black" if shade < 1 else "white" if shade > 254 else "of one colour"
    return Finding(
        "constant-output",
        Severity.CRITICAL,
        step,
        f"The image that `{component}` decoded is {word} all over ({len(at)} of {len(flat)} images).",
        rank(),
        Where(module=component, phase="forward"),
        {"images": at, "of": len(flat), "brightness": shade, "series": component},
        (
            "Look at the latents that went in: `debugger.steps[-1]`. If they are fine, it is the VAE's weights or its"
            " scaling_factor.",
        ),
    )


def _at(record: Mapping[str, Any]) -> str:
    return "" if record["timestep"] is None else f" (timestep {record['timestep']:g})"
