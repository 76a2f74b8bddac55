"""The first step of a script that runs, as a trial: its call of the model and its loss can be made again on a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.preflight.trial import CannotCheckError, Trial
from seismograd.replay.numbers import tensors_in
from seismograd.replay.recorder import Call, Output
from seismograd.replay.rewind import as_it_was
from seismograd.replay.second_look import may_be_noticed
from seismograd.replay.surroundings import Autocast

_THE_SCRIPTS = "the loss is the script's own, and cannot be computed again"
_SCALES = ("MulBackward0", "DivBackward0")

Heard = tuple[str, Any, tuple[Any, ...]]
"""A loss of torch's: its name, what it returned, what it was given."""


def trial_of(call: Call | None, optimizers: Sequence[Optimizer], roots: Sequence[Any], heard: Heard | None) -> Trial:
    """A copy of the model, and the way from its output to the loss that backward was called on.

    The way is known where the loss is an output of the model's, or one of torch's that got such an output, or a view
    of one; a factor (`loss / 4`, a scaler's) does not matter. Anything else raises `CannotCheckError`.
    """
    if call is None:
        raise CannotCheckError("the model is not called exactly once")
    if may_be_noticed(call.module):
        raise CannotCheckError("a second call of the model might be noticed (hooks, compiled code, global names)")
    if any(tensor._version != version for tensor, version in call.versions):
        raise CannotCheckError("the batch was changed in place since the model was called")
    loss = _way(call, roots, heard)
    batch = {"args": call.args, "kwargs": call.kwargs, "more": () if heard is None else heard[2][1:]}
    optimizer = optimizers[0] if len(optimizers) == 1 else None
    return Trial(call.module, batch, loss, optimizer, None).on_a_copy()


def _way(call: Call, roots: Sequence[Any], heard: Heard | None) -> Loss:
    root = roots[0] if len(roots) == 1 else None
    if not isinstance(root, Tensor) or root.numel() != 1 or root.grad_fn is None:
        raise CannotCheckError(_THE_SCRIPTS)
    function = _unscaled(root.grad_fn)
    for out in call.outputs:
        if out.tensor is not None and out.tensor.numel() == 1 and _made_by(function, out):
            return Loss(out.path, call.autocast)
    if heard is None or not isinstance(heard[1], Tensor) or heard[1].grad_fn is not function:
        raise CannotCheckError(_THE_SCRIPTS)
    given = heard[2][0]
    for out in call.outputs:
        if out.tensor is not None and _shares(given, out.tensor):
            return Loss(out.path, call.autocast, heard[0], (given.shape, given.stride(), given.storage_offset()))
    raise CannotCheckError(_THE_SCRIPTS)


def _made_by(function: Any, out: Output) -> bool:
    """Whether this node made the output: the recorder left its mark there."""
    marks = [mark[1] for mark in function.metadata.values() if isinstance(mark, tuple) and len(mark) == 2]
    return any(out is one() for mark in marks if isinstance(mark, dict) for one in mark.values())


def _shares(given: Tensor, output: Tensor) -> bool:
    """Whether it is the output, or a view of it that can be taken again by its strides."""
    return (
        given.layout == output.layout == torch.strided
        and given.dtype == output.dtype
        and given.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
        and output.is_contiguous()
        and output.storage_offset() == 0
    )


def _unscaled(function: Any) -> Any:
    """The node below factors: those of `loss / 4`, and of a `GradScaler`."""
    while function.name() in _SCALES:
        inputs = [one for one, _ in function.next_functions if one is not None]
        if len(inputs) != 1:
            break
        function = inputs[0]
    return function


@dataclass(frozen=True)
class Loss:
    """Makes the call and the loss again."""

    path: str
    """The way to the output that counts."""
    autocast: Autocast
    name: str | None = None
    """The loss of torch's; `None` where the output is the loss."""
    view: tuple[Any, ...] = ()
    """Size, strides and offset of what the loss got of the output."""

    def __call__(self, model: nn.Module, batch: dict[str, Any]) -> Any:
        with as_it_was(self.autocast):
            output = dict(tensors_in(model(*batch["args"], **batch["kwargs"]), "output"))[self.path]
            if self.name is None:
                return output
            function = getattr(torch._C._nn, self.name, None) or getattr(torch, self.name)
            return function(output.contiguous().as_strided(*self.view), *batch["more"])
