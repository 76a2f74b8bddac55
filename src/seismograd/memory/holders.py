"""What holds memory: the containers that grow from look to look, named as the user knows them. Facts, no judgement.

Between two looks only numbers are kept: how long each container was, by the way that leads to it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from torch import nn

from seismograd.memory.alive import live_tensors
from seismograd.memory.nodes import Container, Key
from seismograd.memory.sites import in_loop
from seismograd.memory.telling import Length, Teller
from seismograd.memory.walk import Walk

SECONDS = 0.5
"""The longest that one look goes through the user's objects."""

_MOST = 12
"""So many growing containers are told of, the heaviest first."""

_POINTS = 16
"""So many lengths of a growing container are kept: of the first look, and of the last ones."""

_MOST_KNOWN = 60_000
_MOST_GROWING = 256


@dataclass(slots=True)
class Look:
    """What one look saw."""

    step: int
    growing: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    """Live tensors by shape, dtype and device, with who holds them."""
    complete: bool = True
    seconds: float = 0.0


class Looks:
    """Looks again and again, and knows what grew."""

    def __init__(self) -> None:
        self._lengths: dict[Key, int] = {}
        self._grew: dict[Key, list[Length]] = {}
        self._step = -1
        self.number = 0

    def look(self, step: int, models: Mapping[str, nn.Module], frame: FrameType | None) -> Look:
        """One pass from the frames above `frame` and everything else that has a name."""
        began = perf_counter()
        collects = gc.isenabled()
        gc.disable()  # what a walk makes is gone after it: not worth a collection of everything
        try:
            with torch._C.DisableTorchFunctionSubclass():  # a tensor of the user's own kind has code of its own
                found = self._look(step, models, frame)
        finally:
            if collects:
                gc.enable()
        found.seconds = perf_counter() - began
        return found

    def _look(self, step: int, models: Mapping[str, nn.Module], frame: FrameType | None) -> Look:
        walk = Walk(models, SECONDS).go(frame, in_loop)
        found = Look(step, complete=walk.complete)
        grown = list(self._compare(step, walk))
        if grown:
            teller = Teller(walk, models)
            told = [teller.tell(container, lengths) for container, lengths in grown]
            told.sort(key=lambda each: (-each["graphs"], -each["rate"] * each["each"], each["name"]))
            found.growing = told[:_MOST]
            if self.number & (self.number - 1) == 0 and any(each["holds"] == "tensors" for each in found.growing):
                found.groups = live_tensors(models, [(c, teller.name(c)) for c, _ in grown])
        return found

    def _compare(self, step: int, walk: Walk) -> Iterator[tuple[Container, list[Length]]]:
        known, before = self._lengths, self._step
        self._lengths = {key: each.length for key, each in islice(walk.containers.items(), _MOST_KNOWN)}
        self._step = step
        self.number += 1
        for key, container in walk.containers.items():
            lengths = self._grew.get(key)
            if lengths is not None:
                lengths.append((step, container.length))
                if len(lengths) > _POINTS:
                    del lengths[1]
                if lengths[-1][1] > lengths[-2][1]:
                    yield container, lengths
            elif known.get(key, sys.maxsize) < container.length and len(self._grew) < _MOST_GROWING:
                lengths = self._grew[key] = [(before, known[key]), (step, container.length)]
                yield container, lengths
        for key in [key for key, lengths in self._grew.items() if _is_over(lengths)]:
            del self._grew[key]


def _is_over(lengths: list[Length]) -> bool:
    """Whether a container stands still, or is as short as it was at first."""
    last = [length for _, length in lengths[-3:]]
    return len(lengths) > 3 and (last[0] == last[-1] or last[-1] <= lengths[0][1])
