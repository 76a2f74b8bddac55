"""Whether a feature of the input tells the target: how each column goes with it, over the first steps."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seismograd.onlookers.onlooker import Onlooker
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

_STEPS = 24
"""So many batches are added up."""

_TOLD = (4, 12, _STEPS)
"""After so many it is told."""

_LARGEST = 200_000
_FEW = 16
"""Rows: in a smaller batch a column may equal the target by chance."""


class Columns(Onlooker):
    """Compares the input of the model, column by column, with the target of the loss.

    Of windows of a sequence only the last position counts: that is where one that was cut too late holds the target.
    """

    topic: ClassVar[str] = "columns"
    dear: ClassVar[bool] = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._input: weakref.ref[Tensor] | None = None
        self._forget()

    def _forget(self) -> None:
        self._count = self._told = self._rows = self._features = 0
        self._sums: Tensor | None = None
        self._equal: Tensor | None = None
        self._classes = True

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        if not ours:  # a loss
            return
        self._input = None
        if trains and self._count < _STEPS and len(args) == 1 and not kwargs:
            x = args[0]
            if isinstance(x, Tensor) and x.is_floating_point() and x.ndim in (2, 3) and x.layout == torch.strided:
                self._input = weakref.ref(x)

    def loss_computed(self, name: str, output: Any, args: Sequence[Any]) -> None:
        reference, self._input = self._input, None
        x = None if reference is None else reference()
        y = args[1] if len(args) > 1 else None
        if x is None or not isinstance(y, Tensor) or not torch.is_tensor(output) or not output.requires_grad:
            return
        rows, features = int(x.shape[0]), x.numel() // max(1, int(x.shape[0]))
        if y.numel() != rows or rows < _FEW or features < 2 or x.numel() > _LARGEST or y.device != x.device:
            return
        if y.is_complex() or x.device.type == "mps":  # no float64 there
            return
        table = x.detach() if x.ndim == 2 else x.detach()[:, -1]
        if self._sums is None or self._sums.shape[1] != table.shape[1] or self._sums.device != x.device:
            self._forget()
            self._sums = torch.zeros(3, table.shape[1], dtype=torch.float64, device=x.device)
            self._equal = torch.ones(table.shape[1], dtype=torch.bool, device=x.device)
            self._target = torch.zeros(2, dtype=torch.float64, device=x.device)
        target = y.detach().reshape(rows, 1)
        wide, goal = table.double(), target.double()
        assert self._equal is not None
        self._equal &= (table == target.to(table.dtype)).all(0)
        self._sums += torch.stack([wide.sum(0), (wide * wide).sum(0), (wide * goal).sum(0)])
        self._target += torch.stack([goal.sum(), (goal * goal).sum()])
        self._classes &= not y.is_floating_point() or "entropy" in name
        self._count += 1
        self._rows += rows
        self._features = features

    def look(self, pack: Pack, step: int) -> None:
        if self._count not in _TOLD or self._count == self._told or self._sums is None or self._equal is None:
            return
        self._told, n = self._count, self._rows
        of_x = self._sums[1] - self._sums[0] ** 2 / n
        of_y = self._target[1] - self._target[0] ** 2 / n
        both = self._sums[2] - self._sums[0] * self._target[0] / n
        tiny = 1e-12 * (self._sums[1] + 1e-300)
        strength = torch.where(of_x > tiny, (both.square() / (of_x * of_y)).nan_to_num(0.0, 0.0, 0.0), 0.0)
        best = strength.argmax()
        pack.add("columns/best", [strength[best].sqrt(), best, self._equal[best], of_y])

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        if "columns/best" not in values:
            return None
        correlation, column, equal, spread = values["columns/best"]
        told = {"correlation": correlation, "column": int(column), "equal": bool(equal), "varies": spread > 0}
        return {**told, "classes": self._classes, "rows": self._rows, "features": self._features, "batches": self._told}

    def restart(self) -> None:
        self._input = None

    def close(self) -> None:
        self._input = None
        self._forget()
