"""A weight that was already bad when the step began: which update made it so, and out of what."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seismograd.places import caller
from seismograd.probes.watched import Watched
from seismograd.records import Origin, Reading, Where
from seismograd.replay.numbers import bad_places, is_bad, operand
from seismograd.replay.tracer import Place, origin_at


def blame_update(reading: Reading, before: Reading | None, watched: Watched) -> Origin | None:
    """The update that made a parameter bad; `None` if none is, or if it was so from the start."""
    table = reading.tensors.get("nonfinite_parameter")
    roster = watched.roster
    if table is None or before is None:
        return None
    names = set(table.names)
    places = [at for at, name in enumerate(roster.names) if name in names]
    if not places:
        return None  # a buffer: forward writes those
    place = places[0]
    name, parameter = roster.names[place], roster.parameters[place]
    owner = next((index for index, members in enumerate(roster.members) if place in members), None)
    optimizer = watched.optimizers[owner] if owner is not None else None
    facts: dict[str, Any] = {"step": before.step, "parameter": name}
    gradients = before.tensors.get("gradient")
    if gradients is not None and name in gradients.names:
        facts["gradient"] = gradients.row(name).get("norm")
    if optimizer is not None:
        group = roster.group_of(place) or {}
        facts |= _state(optimizer, parameter, group)
        groups = [each for one in watched.optimizers for each in one.param_groups]  # numbered as in a reading
        number = next((at for at, each in enumerate(groups) if each is group), None)
        if (lr := before.scalars.get(f"lr/{number}")) is not None:
            facts["lr"] = lr  # a schedule may have moved it since
    if reading.step > before.step + 1:
        facts["not_read"] = reading.step - before.step - 1
    facts["made_by"] = made_by = _made_by(facts, parameter)
    value, count, index = bad_places(parameter)
    told = origin_at(
        Place(None if made_by == "not read" else caller(), None, name.rpartition(".")[0]),
        phase="optimizer",
        op=None,
        value=value,
        bad=count,
        size=parameter.numel(),
        index=index,
        shape=tuple(parameter.shape),
        dtype=str(parameter.dtype).removeprefix("torch."),
        inputs=(operand(name, parameter, name),),
        facts=facts,
        sure=made_by not in _NOTES,
        note=_NOTES.get(made_by),
    )
    where = Where(told.where.module, name, None, "optimizer", told.where.file, told.where.line, told.where.code)
    return Origin(**{**{part: getattr(told, part) for part in Origin.__slots__}, "where": where})


_NOTES = {
    "unknown": "the update looks sound: your own code may have written it",
    "not read": "it began in a step that was not read, so what made it could not be seen",
}


def _state(optimizer: Optimizer, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
    state = optimizer.state.get(parameter, {})
    lr = group.get("lr")
    bad = [name for name, value in state.items() if isinstance(value, Tensor) and is_bad(value)]
    facts: dict[str, Any] = {"optimizer": type(optimizer).__name__, "state": bad}
    if lr is not None:
        facts["lr"] = float(lr)
    if "eps" in group:
        facts["eps"] = float(group["eps"])
    return facts


def _made_by(facts: dict[str, Any], parameter: Tensor) -> str:
    """What is wrong with the update, in a few words."""
    if not math.isfinite(facts.get("lr", 0.0)):
        return "lr not finite"
    gradient = facts.get("gradient")
    if gradient is not None and not math.isfinite(gradient):
        return "gradient not finite"
    eps = facts.get("eps")
    if (
        eps is not None and float(torch.tensor(eps, dtype=torch.float64, device="cpu").to(parameter.dtype)) == 0.0
    ):  # 1e-8 is 0 in float16
        return "eps 0"
    if "not_read" not in facts and facts.get("state"):
        return "state not finite"
    if gradient is not None and abs(facts.get("lr", 0.0)) * gradient > 1e30:
        return "update overflow"
    return "not read" if "not_read" in facts else "unknown"
