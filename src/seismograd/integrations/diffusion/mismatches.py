"""Parts of a pipeline that do not fit each other: only what is wrong for sure, or is said to be worth knowing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from seismograd.detectors.wording import number
from seismograd.integrations.diffusion.components import denoiser_of
from seismograd.integrations.diffusion.schedulers import ends_without_signal, numbers, predicts, setting
from seismograd.records import Finding, Severity, Where, rank

ID = "pipeline-mismatch"

_TEXT_TO_IMAGE = ("StableDiffusionPipeline", "StableDiffusionXLPipeline", "StableDiffusion3Pipeline", "DiTPipeline")
"""Pipelines that give their model the latents and nothing else."""


def mismatch(part: str, severity: Severity, message: str, evidence: Mapping[str, Any], advice: str) -> Finding:
    """A finding about one part; `part` tells it from others of its kind."""
    told = {**evidence, "series": part}
    return Finding(ID, severity, 0, message, rank(), Where(module=part.partition(" ")[0]), told, (advice,))


def mismatches(pipeline: Any, parts: Mapping[str, Any], told: Mapping[str, Any], trained_with: Any) -> list[Finding]:
    """Everything that does not fit. `told` is what is known of each component."""
    scheduler = parts.get("scheduler")
    found = [*_places(told), *_shapes(pipeline, parts)]
    if scheduler is not None:
        found += [*_scheduler(scheduler, "vae" in parts or "vqvae" in parts), *_training(scheduler, trained_with)]
    return found


def _places(told: Mapping[str, Any]) -> Iterator[Finding]:
    """Devices and dtypes of components."""
    models = {name: each for name, each in told.items() if each.get("parameters")}
    own = {name: each for name, each in models.items() if each["offload"] is None}
    devices = {name: each["devices"] for name, each in own.items()}
    if len({place for places in devices.values() for place in places}) > 1:
        listed = ", ".join(f"`{name}` on {' and '.join(places)}" for name, places in devices.items())
        yield mismatch(
            "devices",
            Severity.WARNING,
            f"The components lie on different devices, and nothing moves them: {listed}.",
            {"devices": devices},
            "Move all of them with `pipe.to(device)`, or have them moved: `pipe.enable_model_cpu_offload()`.",
        )
    dtypes = {name: each["dtype"] for name, each in models.items() if "float" in str(each["dtype"])}
    if len(set(dtypes.values())) > 1:
        listed = ", ".join(f"`{name}` in {dtype}" for name, dtype in dtypes.items())
        yield mismatch(
            "dtypes",
            Severity.INFO,
            f"The components have different dtypes: {listed}.",
            {"dtypes": dtypes},
            "Many pipelines then fail where one component's output goes into the next:"
            " `pipe.to(dtype)` makes them one. A VAE in float32 is often meant: some pipelines cast for it.",
        )


def _shapes(pipeline: Any, parts: Mapping[str, Any]) -> Iterator[Finding]:
    """Channels and widths of what one component gives to the next."""
    vae, model = parts.get("vae"), denoiser_of(pipeline)
    channels = setting(vae, "latent_channels")
    kind = type(pipeline).__name__
    if vae is not None and type(vae).__name__ == "AutoencoderKL" and not setting(vae, "scaling_factor"):
        yield mismatch(
            "vae scaling_factor",
            Severity.WARNING,
            f"The VAE's scaling_factor is {setting(vae, 'scaling_factor')!r}: latents cannot be brought to a"
            " standard deviation of 1.",
            {"scaling_factor": setting(vae, "scaling_factor")},
            "Set it to 1 / std of the latents of your data: `vae.register_to_config(scaling_factor=...)`"
            " (0.18215 for Stable Diffusion 1 and 2).",
        )
    if model is None:
        return
    name, module = model
    takes, gives = setting(module, "in_channels"), setting(module, "out_channels")
    if isinstance(channels, int) and isinstance(takes, int):
        plain = kind in _TEXT_TO_IMAGE
        if takes < channels or (plain and takes != channels):
            yield mismatch(
                f"{name} in_channels",
                Severity.CRITICAL,
                f"`{name}` takes {takes} channels, the latents of `vae` have {channels}.",
                {"in_channels": takes, "latent_channels": channels},
                "Take the VAE that this model was trained with."
                + (" A model for inpainting or editing needs its own pipeline class." if takes > channels else ""),
            )
        elif type(module).__name__ == "UNet2DConditionModel" and gives not in (channels, 2 * channels):
            yield mismatch(
                f"{name} out_channels",
                Severity.CRITICAL,
                f"`{name}` gives {gives} channels, the latents of `vae` have {channels}.",
                {"out_channels": gives, "latent_channels": channels},
                "Take the VAE that this model was trained with.",
            )
    yield from _text(kind, parts, name, module)


def _text(kind: str, parts: Mapping[str, Any], name: str, module: Any) -> Iterator[Finding]:
    wanted = setting(module, "cross_attention_dim")
    if type(module).__name__ != "UNet2DConditionModel" or not kind.startswith("StableDiffusion"):
        return
    if not isinstance(wanted, int) or setting(module, "encoder_hid_dim") is not None:
        return
    widths = {
        key: setting(parts[key], "hidden_size")
        for key in ("text_encoder", "text_encoder_2")
        if parts.get(key) is not None
    }
    if not widths or not all(isinstance(width, int) for width in widths.values()):
        return
    if wanted not in (sum(widths.values()), *widths.values()):  # the refiner has the second encoder alone
        listed = " and ".join(f"`{key}` is {width} wide" for key, width in widths.items())
        yield mismatch(
            f"{name} cross_attention_dim",
            Severity.CRITICAL,
            f"`{name}` attends to text of width {wanted} (cross_attention_dim), {listed}.",
            {"cross_attention_dim": wanted, "hidden_size": widths},
            "Take the text encoder that this model was trained with.",
        )


def _scheduler(scheduler: Any, of_latents: bool) -> Iterator[Finding]:
    """What a scheduler is set to that cannot be right."""
    kind, predicted, trained = type(scheduler).__name__, predicts(scheduler), setting(scheduler, "num_train_timesteps")
    betas, signal = numbers(getattr(scheduler, "betas", None)), numbers(getattr(scheduler, "alphas_cumprod", None))
    if any(not math.isfinite(beta) or not 0 <= beta <= 1 for beta in betas):
        yield mismatch(
            "scheduler betas",
            Severity.CRITICAL,
            f"The betas of {kind} go from {number(min(betas))} to {number(max(betas))}: each has to lie between 0"
            " and 1.",
            {"min": min(betas), "max": max(betas)},
            "Check beta_start and beta_end; 0.0001 and 0.02 are those of DDPM, for 1000 timesteps.",
        )
    elif ends_without_signal(scheduler) and predicted == "epsilon":
        yield mismatch(
            "scheduler terminal_snr",
            Severity.WARNING,
            f"{kind} leaves no signal at its last timestep (zero terminal SNR), and prediction_type is 'epsilon': there"
            " the image follows from the predicted noise by a division by 0.",
            {"alphas_cumprod": signal[-1], "prediction_type": predicted},
            "Train and sample with prediction_type='v_prediction', or without rescale_betas_zero_snr.",
        )
    if ends_without_signal(scheduler) and setting(scheduler, "timestep_spacing") == "leading":
        yield mismatch(
            "scheduler timestep_spacing",
            Severity.WARNING,
            f"{kind} leaves no signal at its last timestep (zero terminal SNR), but timestep_spacing='leading' never"
            " begins there: the brightness of images stays near the mean.",
            {"timestep_spacing": "leading"},
            "Set timestep_spacing='trailing'.",
        )
    if of_latents and setting(scheduler, "clip_sample") and float(setting(scheduler, "clip_sample_range", 1.0)) <= 1:
        yield mismatch(
            "scheduler clip_sample",
            Severity.WARNING,
            f"{kind} clips its prediction to -1 ... 1 (clip_sample=True), which is the range of images; these are"
            " latents of a VAE, which go beyond it.",
            {"clip_sample": True},
            f"`pipe.scheduler = {kind}.from_config(pipe.scheduler.config, clip_sample=False)`.",
        )
    steps = getattr(scheduler, "num_inference_steps", None)
    if signal and isinstance(steps, int) and isinstance(trained, int) and steps > trained:
        yield mismatch(
            "scheduler num_inference_steps",
            Severity.WARNING,
            f"{steps} inference steps are more than the {trained} timesteps that the model was trained with.",
            {"num_inference_steps": steps, "num_train_timesteps": trained},
            f"Ask for {trained} steps or fewer; 20 to 50 are usual.",
        )


_OF_TRAINING = (*("num_train_timesteps", "beta_schedule", "beta_start", "beta_end", "rescale_betas_zero_snr", "shift"),)


def _training(scheduler: Any, trained_with: Any) -> Iterator[Finding]:
    """How the pipeline's scheduler differs from the one of the training."""
    if trained_with is None:
        return
    here, there = predicts(scheduler), predicts(trained_with)
    if here is not None and there is not None and here != there:
        yield mismatch(
            "scheduler prediction_type",
            Severity.CRITICAL,
            f"The pipeline's scheduler takes what the model predicts for {here!r}, it was trained on {there!r}.",
            {"pipeline": here, "training": there},
            f"`pipe.scheduler = {type(scheduler).__name__}.from_config(noise_scheduler.config)`.",
        )
    other = {
        name: (setting(scheduler, name), setting(trained_with, name))
        for name in _OF_TRAINING
        if None not in (setting(scheduler, name), setting(trained_with, name))
        and setting(scheduler, name) != setting(trained_with, name)
    }
    if other:
        listed = ", ".join(f"{name} {ours!r} instead of {theirs!r}" for name, (ours, theirs) in other.items())
        yield mismatch(
            "scheduler config",
            Severity.WARNING,
            f"The pipeline's scheduler has another noise schedule than the training: {listed}.",
            {name: list(both) for name, both in other.items()},
            f"`pipe.scheduler = {type(scheduler).__name__}.from_config(noise_scheduler.config)`.",
        )
