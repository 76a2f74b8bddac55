"""Parameters, and what an optimizer step does to them, on sampled steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from seismograd.probes.pack import Pack
from seismograd.probes.watched import Roster
from seismograd.stats import tensors

MOST_BYTES = 256 * 2**20
"""The most that copies of parameters may take for the length of one optimizer step."""


class Parameters:
    """Reads norms, largest values and means of the parameters."""

    name: ClassVar[str] = "parameters"

    def read(self, pack: Pack, roster: Roster) -> None:
        values = roster.parameters
        if all(tensors.there(value) for value in values):
            pack.add("parameter/norm", tensors.norms(values))
            pack.add("parameter/max", tensors.largest(values))
            pack.add("parameter/mean", tensors.means(values))

    def close(self) -> None: ...


@dataclass(slots=True)
class Update:
    """What one step of one optimizer did to its parameters."""

    roster: Roster
    places: list[int]
    """The parameters, by index, that it is about."""
    decay: list[float]
    """For each of them the share of itself that weight decay takes in one step."""
    rates: list[float]
    """For each of them the learning rate of its group, NaN where that lies on the device."""
    copies: list[Tensor]
    step: int = -1
    values: dict[str, list[Tensor]] = field(default_factory=dict)


class Updates:
    """Compares parameters before and after an optimizer's step: `before()` copies, `after()` measures."""

    name: ClassVar[str] = "updates"

    def __init__(self) -> None:
        self._next = 0  # where the rotation goes on when not all parameters fit into MOST_BYTES
        self._under_way: dict[int, Update] = {}
        self._done: dict[int, Update] = {}

    def before(self, roster: Roster, owner: int) -> None:
        """Copies what the optimizer is about to change, and reads the gradients as the optimizer gets them."""
        places = self._choose(roster, owner)
        if not places:  # all of its parameters are frozen
            return
        chosen = [roster.parameters[at] for at in places]
        held = [p.grad if p.grad is not None else torch.zeros((), dtype=torch.float32, device=p.device) for p in chosen]
        update = Update(
            roster,
            places,
            [_decay_of(roster, at) for at in places],
            [_rate_of(roster, at) for at in places],
            [tensors.dense(p).clone() for p in chosen],
        )
        update.values["update/gradient"] = tensors.norms(held)
        self._under_way[owner] = update

    def after(self, owner: int, step: int) -> None:
        update = self._under_way.pop(owner, None)
        if update is None:
            return
        parameters = [update.roster.parameters[at] for at in update.places]
        if not all(tensors.there(parameter) for parameter in parameters):
            return
        deltas = torch._foreach_sub([tensors.dense(p) for p in parameters], update.copies)
        update.step = step
        update.values["update/norm"] = tensors.norms(deltas)
        update.values["update/old"] = tensors.norms(update.copies)
        update.values["update/changed"] = [torch.count_nonzero(delta) / max(1, delta.numel()) for delta in deltas]
        update.copies = []
        self._done[owner] = update

    def drop(self) -> None:
        """What was announced and did not take place (a scaler skipped it): forget the copies."""
        self._under_way.clear()

    def read(self, pack: Pack, owner: int) -> Update | None:
        """Adds the newest update of this optimizer, once."""
        update = self._done.pop(owner, None)
        if update is not None:
            for name, values in update.values.items():
                pack.add(name, values)
            pack.host["update/step"] = float(update.step)
        return update

    def close(self) -> None:
        self._under_way, self._done = {}, {}

    def _choose(self, roster: Roster, owner: int) -> list[int]:
        """All trainable parameters of one optimizer, or as many in turn as fit into `MOST_BYTES`."""
        parameters = roster.parameters
        mine = [
            at for at in sorted(roster.members[owner]) if parameters[at].requires_grad and tensors.there(parameters[at])
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


def _rate_of(roster: Roster, place: int) -> float:
    lr = (roster.group_of(place) or {}).get("lr")
    return math.nan if lr is None or isinstance(lr, Tensor) else float(lr)


def _decay_of(roster: Roster, place: int) -> float:
    group = roster.group_of(place) or {}
    lr, decay = group.get("lr"), group.get("weight_decay")
    if lr is None or not decay or isinstance(lr, Tensor) or isinstance(decay, Tensor):
        return 0.0
    return float(lr) * float(decay)
