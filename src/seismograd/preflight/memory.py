"""Memory of one step, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from seismograd.memory.room import room
from seismograd.onlookers.resources.inventory import states_of
from seismograd.preflight.scene import Scene
from seismograd.records import Finding
from seismograd.replay.numbers import tensors_in
from seismograd.replay.tracer import storage_of


class Memory:
    """Adds up what a step keeps: parameters, gradients, the optimizer's state, and what autograd saves for backward.

    These are figures for the report, not findings. The largest batch is an estimate: what is free now, divided by what
    each sample keeps, with a tenth left over.
    """

    name: ClassVar[str] = "memory"
    trains: ClassVar[bool] = True
    watched: ClassVar[bool] = False

    def check(self, scene: Scene) -> Iterable[Finding]:
        trial = scene.trial
        assert trial is not None
        own = {storage_of(one) for one in (*trial.model.parameters(), *trial.model.buffers())}
        saved: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            if tensor.layout == torch.strided and storage_of(tensor) not in own:
                saved[storage_of(tensor)] = tensor.untyped_storage().nbytes()
            return tensor

        with trial.aside(), saved_tensors_hooks(note, _same):
            loss = trial.loss()
            del loss
        weights = sum(p.numel() * p.element_size() for p in trial.model.parameters())
        trained = sum(p.numel() * p.element_size() for p in trial.model.parameters() if p.requires_grad)
        fixed = weights + trained * (1 + states_of(trial.optimizer))
        activations = sum(saved.values())
        figures: dict[str, Any] = {"parameters": weights, "fixed": fixed, "activations": activations}
        size = next((int(one.shape[0]) for _, one in tensors_in(trial.batch) if one.ndim), 0)
        free = _free(next(trial.model.parameters()).device)
        if size and activations:
            figures["batch"] = size
            figures["largest_batch"] = int(0.9 * max(0, free - fixed) / (activations / size))
        scene.figures["memory"] = {**figures, "free": free}
        return []


def _free(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return room().left


def _same(tensor: Tensor) -> Tensor:
    return tensor
