"""Per-parameter gradient norms at every reading, and more of them on sampled steps."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from seismograd.probes.pack import Pack
from seismograd.probes.watched import Watched
from seismograd.stats import tensors


class Gradients:
    """Reads the gradients that the watched parameters hold at this moment, in one fused call."""

    name: ClassVar[str] = "gradients"

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self.places: list[int] = []
        """The parameters, by index, that held a gradient at the last read."""

    def held(self) -> list[Tensor]:
        """The gradients that are there now; `places` says whose."""
        found = [p.grad for p in self._watched.parameters]
        gradients = [g for g in found if g is not None]
        if len(gradients) == len(found):
            if len(self.places) != len(found):
                self.places = list(range(len(found)))
        else:
            self.places = [at for at, g in enumerate(found) if g is not None]
        return gradients

    def read(self, pack: Pack) -> None:
        gradients = self.held()
        if self._watched.plain and gradients:
            try:
                pack.add("gradient/norm", torch._foreach_norm(gradients, 2.0), alike=True)
                return
            except (RuntimeError, TypeError):  # sparse ones among them: the fused call refuses
                self._watched.plain = False
        pack.add("gradient/norm", tensors.norms(gradients))

    def read_more(self, pack: Pack) -> None:
        """Largest magnitude, mean and share of zeros: a few passes over every gradient, for sampled steps."""
        gradients = self.held()
        pack.add("gradient/max", tensors.largest(gradients))
        pack.add("gradient/mean", tensors.means(gradients))
        pack.add("gradient/zeros", tensors.zero_shares(gradients))

    def close(self) -> None: ...
