"""The finding about the component that first gave back something that is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from seismograd.detectors.numerics.origins import FINDINGS, made, told
from seismograd.integrations.diffusion.calls import Taken
from seismograd.records import Finding, Origin, Severity, Where, rank

_VAE_IN_HALF = (
    "The VAE overflows float16: use it in float32. SDXL's pipelines do that by themselves with"
    " `pipe.vae.register_to_config(force_upcast=True)`; with others take the latents"
    ' (`pipe(..., output_type="latent")`), and decode them as float32 after `pipe.vae.to(torch.float32)`.',
    "Or use bfloat16 (`pipe.to(torch.bfloat16)`), or a VAE whose weights were made for float16"
    " (madebyollin/sdxl-vae-fp16-fix for SDXL).",
)


_MODEL_IN_HALF = (
    "Use bfloat16, which has float32's range: `pipe.to(torch.bfloat16)`; or float32 for this component alone, where the"
    " pipeline casts what goes into it.",
)
_TOO_LARGE = (
    "Values this large were there before it: look at the latents step by step (`debugger.steps`), lower"
    " guidance_scale, and check that the scheduler's prediction_type is what the model was trained for.",
)


def culprit(taken: Taken, origin: Origin, step: int, timestep: float | None) -> Finding:
    """A component got finite values, and gave back others."""
    component = taken.shown
    said = f"The output of `{component}` is the first that is not finite, {_when(step, timestep)}"
    advice = [*_VAE_IN_HALF] if _is_autoencoder(taken) and _dtype_of(taken) == "float16" else []
    evidence: dict[str, Any]
    identity = FINDINGS.get(origin.phase, "nonfinite-activation")
    if origin.phase:
        message, evidence, recommendations, where = told(origin, f"{said}: {made(origin)}", (), 0)
        broken = next((each for each in origin.inputs if each.parameter and (each.nan or each.inf)), None)
        if broken is not None:  # the component is not to blame, its weights are
            identity, where = "nonfinite-parameter", replace(where, parameter=broken.parameter)
            advice = ["Load the weights again, from a checkpoint of before they broke; float16 ends at 65504."]
        elif evidence.get("pattern") == "overflow":  # nothing is trained here: the usual advice is for loops that do
            advice = advice or list(_MODEL_IN_HALF if _dtype_of(taken) == "float16" else _TOO_LARGE)
        else:
            advice = advice or recommendations
    else:
        evidence, where = {"note": origin.note, "sure": False}, Where(module=component, phase="forward")
        message = f"{said}. Where in it could not be found out: {origin.note}."
        advice = advice or ["Look at its layers by hand: `sg.PyTorchDebugger().debug_forward_pass(component, inputs)`."]
    if where.module is None:
        where = replace(where, module=component)
    evidence = {
        **evidence,
        "component": component,
        "component_dtype": _dtype_of(taken),
        "timestep": timestep,
        "series": taken.name,
    }
    return Finding(identity, Severity.CRITICAL, step, message, rank(), where, evidence, tuple(advice))


def between(taken: Taken, inputs: Sequence[str], last: str | None, step: int, timestep: float | None) -> Finding:
    """What went into a component was not finite, though no component gave it back so: the pipeline made it."""
    component = taken.shown
    after = "" if last is None else f", though what `{last}` gave back before was"
    advice = (
        "What the pipeline computes between the two made it: guidance (try a lower guidance_scale), a cast to float16,"
        " scaling of latents, or what was given to it (`latents`, `prompt_embeds`)."
    )
    return Finding(
        "nonfinite-input",
        Severity.CRITICAL,
        step,
        f"What goes into `{component}` is not finite ({', '.join(inputs[:3])}), {_when(step, timestep)}{after}.",
        rank(),
        Where(module=component, phase="input"),
        {"component": component, "arguments": list(inputs), "after": last, "timestep": timestep, "series": taken.name},
        (advice,),
    )


def _when(step: int, timestep: float | None) -> str:
    return f"at step {step}" if timestep is None else f"at step {step} (timestep {timestep:g})"


def _is_autoencoder(taken: Taken) -> bool:
    return taken.method in ("decode", "encode") or "Autoencoder" in type(taken.owner).__name__


def _dtype_of(taken: Taken) -> str | None:
    if not isinstance(taken.owner, nn.Module):
        return None
    first = next((p for p in taken.owner.parameters() if p.is_floating_point()), None)
    return None if first is None else str(first.dtype).removeprefix("torch.")
