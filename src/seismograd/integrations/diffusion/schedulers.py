"""What a noise scheduler is set to, and how large the latents should be that it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

_SETTINGS = (
    *("prediction_type", "num_train_timesteps", "beta_schedule", "beta_start", "beta_end", "rescale_betas_zero_snr"),
    *("timestep_spacing", "steps_offset", "clip_sample", "thresholding", "variance_type", "shift"),
)

NO_SIGNAL = 1e-6
"""Below this share of signal there is none: diffusers puts 2**-24 where a division by 0 has to be kept away."""


def setting(owner: Any, name: str, otherwise: Any = None) -> Any:
    """What the config of a component says, whether it is a dict or an object."""
    config = getattr(owner, "config", None)
    if isinstance(config, Mapping):
        return config.get(name, otherwise)
    return getattr(config, name, otherwise)


def describe_scheduler(scheduler: Any) -> dict[str, Any]:
    """The scheduler's class, its settings and the ranges of its tables, as far as it has them."""
    told: dict[str, Any] = {"class": type(scheduler).__name__, "prediction_type": predicts(scheduler)}
    told |= {name: value for name in _SETTINGS if (value := setting(scheduler, name)) is not None and name not in told}
    for name in ("betas", "alphas_cumprod", "sigmas", "timesteps"):
        values = numbers(getattr(scheduler, name, None))
        if values:
            told[name] = {"first": values[0], "last": values[-1], "min": min(values), "max": max(values)}
            told[name]["count"] = len(values)
    for name in ("final_alpha_cumprod", "init_noise_sigma", "num_inference_steps"):
        value = getattr(scheduler, name, None)
        if isinstance(value, (int, float, Tensor)) and not isinstance(value, bool):
            told[name] = float(value) if name != "num_inference_steps" else int(value)
    if "alphas_cumprod" in told:
        told["zero_terminal_snr"] = ends_without_signal(scheduler)
    return told


def numbers(values: Any) -> list[float]:
    """A table of the scheduler's as plain numbers."""
    if not isinstance(values, Tensor) and hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().reshape(-1).tolist()
    return [float(value) for value in values] if isinstance(values, (list, tuple)) else []


def predicts(scheduler: Any) -> str | None:
    """What the model has to predict for this scheduler: `epsilon`, `v_prediction`, `sample` or `flow`."""
    said = setting(scheduler, "prediction_type")
    if "FlowMatch" in type(scheduler).__name__ or said == "flow_prediction":
        return "flow"
    return str(said) if said is not None else None


def ends_without_signal(scheduler: Any) -> bool:
    """Zero terminal SNR: asked for, or exactly 0. A cosine schedule ends at 2e-9, which models of epsilon live with."""
    signal = numbers(getattr(scheduler, "alphas_cumprod", None))
    asked = bool(setting(scheduler, "rescale_betas_zero_snr"))
    return bool(signal) and (signal[-1] == 0 or (asked and signal[-1] < NO_SIGNAL))


def snr_at(scheduler: Any, timestep: float) -> float | None:
    """The signal-to-noise ratio at a timestep; `None` where the scheduler has no such table."""
    table = getattr(scheduler, "alphas_cumprod", None)
    if not isinstance(table, Tensor) or not 0 <= int(timestep) < len(table):
        return None
    signal = float(table[int(timestep)])
    return signal / (1 - signal) if signal < 1 else math.inf


def expected_std(scheduler: Any, step: int) -> float | None:
    """How large the standard deviation of latents is at most after this step, for data of about 1; `None`: unknown.

    Noise that is mixed in keeps it near 1, noise that is added on top makes it that of the noise.
    """
    sigma = getattr(scheduler, "init_noise_sigma", None)
    if not isinstance(sigma, (int, float, Tensor)):
        return 1.0 if predicts(scheduler) == "flow" else None
    if float(sigma) <= 1.5:
        return 1.0
    sigmas = getattr(scheduler, "sigmas", None)
    if not isinstance(sigmas, Tensor) or not len(sigmas):
        return None
    return math.hypot(1.0, float(sigmas[min(step, len(sigmas) - 1)]))


def std_without_prediction(scheduler: Any) -> float | None:
    """How large latents are in the end if the model predicts 0 at every step, as an untrained one about does.

    Noise that was added stays; noise that was mixed in is scaled up as if it were the signal. `None`: unknown.
    """
    sigma = getattr(scheduler, "init_noise_sigma", None)
    if isinstance(sigma, (int, float, Tensor)) and float(sigma) > 1.5:
        return math.hypot(1.0, float(sigma))
    signals, steps = numbers(getattr(scheduler, "alphas_cumprod", None)), numbers(getattr(scheduler, "timesteps", None))
    if not signals or not steps or predicts(scheduler) not in ("epsilon", "v_prediction"):
        return None
    signal = signals[min(max(int(max(steps)), 0), len(signals) - 1)]
    return 1 / math.sqrt(signal) if signal > NO_SIGNAL else math.inf
