"""What the trainer takes for granted where nothing was said: the loss of a batch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seismograd.costs import LABELS


class UsualLoss(nn.Module):
    """Cross entropy for integer targets, the mean squared error for real ones of the output's shape.

    Classes are the output's second axis, as torch has it, or its last one where only that fits (batch, time, class).
    An output with one number for each target may have an axis of length 1 more. All else has to be told.
    """

    def forward(self, output: Any, target: Any) -> Tensor:
        output = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
        if isinstance(output, Tensor) and isinstance(target, Tensor):
            shape, wanted = output.shape, target.shape
            if target.is_floating_point():
                if shape in (wanted, (*wanted, 1)) or wanted == (*shape, 1):
                    return F.mse_loss(output, target.reshape(shape))
            elif not target.is_complex() and target.dtype != torch.bool and len(shape) == len(wanted) + 1:
                if (*shape[:1], *shape[2:]) == wanted:
                    return F.cross_entropy(output, target.long())
                if shape[:-1] == wanted:
                    return F.cross_entropy(output.flatten(0, -2), target.flatten().long())
        raise TypeError(
            f"no loss could be guessed for an output {_told(output)} and a target {_told(target)}: pass a loss_fn"
        )


_USUAL = UsualLoss()


def guessed_loss(model: nn.Module, batch: Any) -> nn.Module | None:
    """The usual loss for a batch with a target that the model does not take; `None`: the model has its own."""
    if isinstance(batch, Mapping):
        label = next((name for name in LABELS if name in batch), None)
        return None if label is None or _takes(model, label) else _USUAL
    return _USUAL if isinstance(batch, (tuple, list)) and len(batch) > 1 else None


def _takes(model: nn.Module, name: str) -> bool:
    try:
        parameters = inspect.signature(getattr(model, "_orig_mod", model).forward).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _told(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"of shape {tuple(value.shape)} and {str(value.dtype).removeprefix('torch.')}"
    return f"that is a {type(value).__name__}"
