"""Parameters, and what an optimizer step does to them, on sampled steps."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from seismograd.probes.pack import Pack
from seismograd.probes.watched import Watched
from seismograd.stats import tensors

MOST_BYTES = 256 * 2**20
"""The most that copies of parameters may take for the length of one optimizer step."""


class Parameters:
    """Reads norms, largest values and spread of the parameters."""

    name: ClassVar[str] = "parameters"

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def read(self, pack: Pack) -> None:
        values = self._watched.parameters
        if not all(tensors.there(value) for value in values):
            return
        pack.add("parameter/norm", tensors.norms(values))
        pack.add("parameter/max", tensors.largest(values))
        pack.add("parameter/mean", tensors.means(values))

    def close(self) -> None: ...


class Updates:
    """Compares parameters before and after an optimizer step: `before()` copies, `after()` measures."""

    name: ClassVar[str] = "updates"

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._next = 0  # where the rotation goes on when not all parameters fit into MOST_BYTES
        self._copies: list[Tensor] = []
        self._results: dict[str, list[Tensor]] = {}
        self.places: list[int] = []
        """The parameters, by index, that the last update is about."""
        self.decay: list[float] = []
        """For each of them the share of itself that weight decay takes in one step."""
        self.step = -1

    def before(self, owner: int | None, step: int) -> None:
        """Copies what the optimizer is about to change, and reads the gradients as the optimizer gets them."""
        parameters = self._watched.parameters
        self.places = self._choose(owner)
        self.decay = [self._decay_of(at) for at in self.places]
        self.step = step
        chosen = [parameters[at] for at in self.places]
        held = [p.grad if p.grad is not None else torch.zeros((), device=p.device) for p in chosen]
        self._results = {"update/gradient": tensors.norms(held)}
        self._copies = [tensors.dense(p).clone() for p in chosen]

    def after(self) -> None:
        if not self._copies:
            return
        before, self._copies = self._copies, []
        if not all(tensors.there(self._watched.parameters[at]) for at in self.places):
            self._results = {}
            return
        now = [tensors.dense(self._watched.parameters[at]) for at in self.places]
        deltas = torch._foreach_sub(now, before)
        self._results["update/norm"] = tensors.norms(deltas)
        self._results["update/old"] = tensors.norms(before)
        self._results["update/changed"] = [torch.count_nonzero(delta) / max(1, delta.numel()) for delta in deltas]

    def drop(self) -> None:
        """The step did not take place: forget the copies."""
        if self._copies:
            self._copies, self._results = [], {}

    def read(self, pack: Pack) -> None:
        if "update/norm" not in self._results:
            return
        for name, values in self._results.items():
            pack.add(name, values)
        pack.host["update/step"] = float(self.step)
        self._results = {}

    def close(self) -> None:
        self._copies, self._results = [], {}

    def _choose(self, owner: int | None) -> list[int]:
        """All trainable parameters of one optimizer, or as many in turn as fit into `MOST_BYTES`."""
        parameters, owners = self._watched.parameters, self._watched.owners
        mine = [
            at
            for at, parameter in enumerate(parameters)
            if parameter.requires_grad
            and owners[at] >= 0
            and (owner is None or owners[at] == owner)
            and tensors.there(parameter)
        ]
        chosen: list[int] = []
        size = 0
        for turn in range(len(mine)):
            at = mine[(self._next + turn) % len(mine)]
            size += parameters[at].numel() * parameters[at].element_size()
            if size > MOST_BYTES and chosen:
                self._next = (self._next + turn) % len(mine)
                break
            chosen.append(at)
        return sorted(chosen)

    def _decay_of(self, at: int) -> float:
        group = self._watched.group_of(at)
        lr, decay = (group.get("lr"), group.get("weight_decay")) if group else (None, None)
        if lr is None or not decay or isinstance(lr, Tensor) or isinstance(decay, Tensor):
            return 0.0
        return float(lr) * float(decay)
