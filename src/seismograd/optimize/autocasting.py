"""Which narrow dtype a model computes in, and what its training needs for that."""

from __future__ import annotations

from itertools import chain

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from seismograd.optimize.modes import OptimizationMode

NARROW = (torch.bfloat16, torch.float16)


def device_of(model: nn.Module) -> torch.device:
    """Where the model is: the device of its first parameter or buffer, the CPU if it has none."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def narrow_dtype(device: torch.device, asked: torch.dtype | None = None) -> torch.dtype:
    """What autocast computes in on a device: what was asked for, else bfloat16, or float16 where a GPU lacks it."""
    if asked is not None:
        if asked not in NARROW:
            raise ValueError(f"dtype {asked} is none that autocast computes in: use torch.bfloat16 or torch.float16")
        return asked
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    return torch.bfloat16


def scaler_for(model: nn.Module, mode: OptimizationMode | str, dtype: torch.dtype | None = None) -> GradScaler | None:
    """The `GradScaler` that a training in this mode needs: with float16, whose small gradients would vanish."""
    device = device_of(model)
    if not OptimizationMode.of(mode).narrows or narrow_dtype(device, dtype) is not torch.float16:
        return None
    return GradScaler(device.type)
