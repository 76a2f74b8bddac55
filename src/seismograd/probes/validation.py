"""Validation losses that are seen by themselves: calls of the loss module in an evaluation without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Validation:
    """Averages what a loss module returns while all models are in evaluation mode and gradients are off.

    Only of a loss module that was used in training too, so that both curves mean the same. An evaluation ends when the
    module is next used in training.
    """

    name: ClassVar[str] = "validation"

    def __init__(self, loss_fn: Any, models: Iterable[nn.Module], step: Callable[[], int]) -> None:
        self._models = list(models)
        self._step = step
        self._total: Tensor | None = None
        self._count = 0
        self._ended: list[tuple[int, Tensor]] = []
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
            self._end()
        elif self._trained and not any(model.training for model in self._models):
            value = output.detach().reshape(()).float()
            self._total = value.clone() if self._total is None else self._total + value
            self._count += 1

    def _end(self) -> None:
        if self._total is not None:
            self._ended.append((self._step(), self._total / self._count))
            self._total, self._count = None, 0

    def take(self) -> list[tuple[int, float]]:
        """The evaluations since the last call: their steps and mean losses. Waits for the device if there are any."""
        self._end()
        if not self._ended:
            return []
        ended, self._ended = self._ended, []
        return [(step, float(mean)) for step, mean in ended]

    @property
    def waiting(self) -> bool:
        return self._total is not None or bool(self._ended)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._models = []
