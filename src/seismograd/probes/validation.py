"""Validation losses that are seen by themselves: calls of the loss module in an evaluation without gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Validation:
    """Averages what a loss module returns while all models are in evaluation mode and gradients are off.

    Only of a loss module that was used in training too, so that both curves mean the same.
    """

    name: ClassVar[str] = "validation"

    def __init__(self, loss_fn: Any, models: Iterable[nn.Module]) -> None:
        self._models = list(models)
        self._total: Tensor | None = None
        self._count = 0
        self._trained = False
        self._handle = loss_fn.register_forward_hook(self._hook) if isinstance(loss_fn, nn.Module) else None

    def _hook(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            self._see(output)
        except Exception:  # a loss like no other: there is nothing to see
            self.close()

    def _see(self, output: Any) -> None:
        if not isinstance(output, Tensor) or output.numel() != 1 or not output.is_floating_point():
            return
        if torch.is_grad_enabled():
            self._trained = True
        elif self._trained and not any(model.training for model in self._models):
            value = output.detach().reshape(()).float()
            self._total = value.clone() if self._total is None else self._total + value
            self._count += 1

    def take(self) -> float | None:
        """The mean of the evaluation that just ended, if there was one. Waits for the device."""
        if self._total is None:
            return None
        value = float(self._total) / self._count
        self._total, self._count = None, 0
        return value

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._models = []
