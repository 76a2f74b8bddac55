"""The states of all random number generators as plain values, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from seismograd.complaints import complain
from seismograd.replay.surroundings import Randomness, as_lists, generators_of


def noted(own: Sequence[Any]) -> dict[str, Any]:
    """The states as they are now: torch's, the devices', Python's, NumPy's, and those of `own` generators."""
    now = Randomness.now(own=own)
    return {
        "torch": now.torch,
        "devices": list(now.devices),
        "python": now.python,
        "numpy": as_lists(now.numpy),
        "own": [state if isinstance(state, Tensor) else as_lists(state) for _, state in now.own],
    }


def restore(states: Mapping[str, Any], own: Sequence[Any]) -> None:
    """Sets all generators to what was noted; what is not there any more is told."""
    devices = states["devices"]
    if devices and len(devices) != torch.cuda.device_count():
        there = torch.cuda.device_count()
        complain(f"seismograd: generators of {len(devices)} devices were saved, {there} are there: theirs start anew")
        devices = []
    if len(states["own"]) != len(own):
        many = len(states["own"])
        complain(f"seismograd: {many} generators of model and loaders were saved, {len(own)} are there now")
    pairs = tuple(zip(own, states["own"], strict=False))
    Randomness(states["torch"], tuple(devices), states["python"], states["numpy"], pairs).restore()


def held_by(modules: Iterable[Any], *loaders: Any) -> list[Any]:
    """The generators that modules hold, and loaders with what is in them."""
    found = generators_of([*modules, *(part for loader in loaders for part in _parts(loader))])
    return list({id(one): one for one in found}.values())


def _parts(loader: Any, depth: int = 0) -> list[Any]:
    """A loader, its samplers, data sets and transforms, and those inside of them."""
    if not hasattr(loader, "__dict__") or depth > _DEEPEST:
        return []
    inside = [vars(loader).get(name) for name in _INSIDE]
    several = vars(loader).get("datasets")
    if isinstance(several, (list, tuple)):
        inside += several
    return [loader, *(part for one in inside for part in _parts(one, depth + 1))]


_DEEPEST = 5
_INSIDE = ("dataset", "sampler", "batch_sampler", "collate_fn", "transform", "target_transform")
