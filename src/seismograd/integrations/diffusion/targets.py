"""What goes into the loss of a diffusion model: the latents, the noise, and the target that is made of both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seismograd.detectors.wording import number
from seismograd.integrations.diffusion.schedulers import predicts, setting
from seismograd.records import Finding, Severity, Where, rank

LOOKS = 16
"""Steps at which the target and the size of the latents are looked at."""
SURE_AFTER = 3
LARGE, SMALL = 3.0, 0.1
"""Of the standard deviation of data that noise of 1 is mixed with."""

_KINDS = ("epsilon", "sample", "v_prediction", "flow", "reversed flow")
_WORDS = {
    "epsilon": "the noise",
    "sample": "the latents themselves",
    "v_prediction": "the velocity",
    "flow": "noise - latents",
    "reversed flow": "latents - noise",
}


class Targets:
    """What was seen of latents, noise and targets at the steps so far."""

    def __init__(self) -> None:
        self._before: Tensor | None = None
        self._seen: dict[str, int] = {}
        self._looked = 0
        self._scales: list[float] = []

    def pack(
        self, scheduler: Any, timesteps: Tensor, latents: Tensor | None, noise: Tensor | None, target: Tensor | None
    ) -> list[Tensor]:
        """The numbers to be fetched with the step's own, still on the device: always eight."""
        nothing = torch.full((), torch.nan, dtype=torch.float32)
        found = [nothing] * 8
        looks = self._looked < LOOKS
        self._looked += 1
        if noise is not None and noise.is_floating_point() and noise.numel():
            part = noise.detach()[:2].flatten(1)[:, :256]
            if self._before is not None and self._before.shape == part.shape:
                found[0] = (self._before == part).all().float()
            if len(part) > 1 and part.shape[1] > 1:
                found[1] = (part[0] == part[1]).all().float()
            self._before = part.clone()
        if looks and latents is not None and latents.is_floating_point() and latents.numel() > 1:
            found[2] = latents.detach().float().std()
        if looks and None not in (latents, noise, target):
            assert latents is not None
            assert noise is not None
            assert target is not None
            if latents.shape == noise.shape == target.shape:
                found[3:] = self._distances(scheduler, timesteps, latents.detach(), noise.detach(), target.detach())
        return found

    def _distances(
        self, scheduler: Any, timesteps: Tensor, latents: Tensor, noise: Tensor, target: Tensor
    ) -> list[Tensor]:
        wide, clear = target.float(), latents.float()
        rough = noise.float()
        candidates: list[Tensor | None] = [rough, clear, None, rough - clear, clear - rough]
        table = getattr(scheduler, "alphas_cumprod", None)
        if isinstance(table, Tensor) and not timesteps.is_floating_point():
            at = timesteps.to(target.device).clamp(0, len(table) - 1)  # what lies beyond is for `add_noise` to refuse
            signal = table.to(target.device)[at].float()
            signal = signal.reshape(-1, *[1] * (target.ndim - 1))
            candidates[2] = signal.sqrt() * rough - (1 - signal).sqrt() * clear
        scale = wide.square().mean().sqrt().clamp_min(1e-12)
        nothing = torch.full((), torch.nan, dtype=torch.float32)
        return [nothing if one is None else ((wide - one).square().mean().sqrt() / scale).float() for one in candidates]

    def judge(self, numbers: list[float], scheduler: Any, vae: Any, step: int) -> list[Finding]:
        """What is wrong with the numbers of `pack`, once fetched."""
        found = [_same_noise(numbers[0] == 1.0, numbers[1] == 1.0, step)]
        if numbers[2] == numbers[2]:
            self._scales.append(numbers[2])
            if len(self._scales) >= SURE_AFTER:
                found.append(_scale(sum(self._scales) / len(self._scales), vae, step))
        alike = [kind for kind, distance in zip(_KINDS, numbers[3:], strict=True) if distance < 0.01]
        if len(alike) == 1:
            self._seen[alike[0]] = self._seen.get(alike[0], 0) + 1
            wanted = predicts(scheduler)
            if wanted is not None and alike[0] != wanted and self._seen[alike[0]] >= SURE_AFTER:
                found.append(_wrong_target(alike[0], wanted, scheduler, step))
        return [finding for finding in found if finding is not None]


def _same_noise(again: bool, shared: bool, step: int) -> Finding | None:
    if not (again or shared):
        return None
    what = "is the same as at the step before" if again else "is the same for all samples of the batch"
    return Finding(
        "duplicate-randomness",
        Severity.CRITICAL if again else Severity.WARNING,
        step,
        f"The noise that is added at step {step} {what}: the model learns this noise by heart.",
        rank(),
        Where(phase="input"),
        {"again": again, "shared": shared, "series": "noise again" if again else "noise shared"},
        (
            "Draw it anew at every step, for every sample: `noise = torch.randn_like(latents)` inside the loop; a"
            " generator must not be seeded there.",
        ),
    )


def _scale(std: float, vae: Any, step: int) -> Finding | None:
    factor = setting(vae, "scaling_factor")
    factor = float(factor) if isinstance(factor, (int, float)) and factor > 0 else None
    twice = factor is not None and factor != 1 and std < 0.35 and 0.5 < std / factor < 2
    if SMALL <= std <= LARGE and not twice:
        return None
    advice = "Bring the data to a standard deviation near 1: images to -1 ... 1, latents by the VAE's scaling_factor."
    if factor is not None and std > LARGE and 1 / LARGE < std * factor < LARGE:
        advice = (
            f"Multiply them: `latents = vae.encode(x).latent_dist.sample() * vae.config.scaling_factor` ({factor:g})."
        )
    elif twice:
        advice = f"They seem to be scaled twice: multiply by vae.config.scaling_factor ({factor:g}) once."
    return Finding(
        "unnormalized-input",
        Severity.WARNING,
        step,
        f"The latents have a standard deviation of {number(std)}, and noise of 1 is mixed with them: the schedule is"
        f" made for data of about 1, so most timesteps are {'all signal' if std > 1 else 'all noise'}.",
        rank(),
        Where(phase="input"),
        {"std": std, "limit": LARGE if std > 1 else SMALL, "scaling_factor": factor, "series": "latents"},
        (advice,),
    )


def _wrong_target(kind: str, wanted: str, scheduler: Any, step: int) -> Finding:
    return Finding(
        "loss-input-mismatch",
        Severity.WARNING,
        step,
        f"The target of the loss is {_WORDS[kind]}, but {type(scheduler).__name__} is set to {wanted!r}"
        f" ({_WORDS.get(wanted, wanted)}): a pipeline with this scheduler will make noise.",
        rank(),
        Where(phase="loss"),
        {"target": kind, "prediction_type": wanted, "series": "target"},
        (
            "Use the target that belongs to it: `noise` for 'epsilon', `noise_scheduler.get_velocity(latents, noise,"
            " timesteps)` for 'v_prediction', `latents` for 'sample', `noise - latents` for flow matching.",
            "Or set the scheduler's prediction_type to what is trained.",
        ),
    )
