"""Per-parameter gradient norms at every reading, and more of them on sampled steps."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from seismograd.probes.pack import Pack
from seismograd.probes.watched import Roster
from seismograd.stats import tensors


class Gradients:
    """Reads the gradients that parameters hold at this moment, in one fused call."""

    name: ClassVar[str] = "gradients"

    def read(self, pack: Pack, roster: Roster) -> list[int]:
        """Adds the norms; returns the parameters, by index, that hold a gradient."""
        places, gradients = held(roster)
        if roster.plain and gradients:
            try:
                pack.add("gradient/norm", torch._foreach_norm(gradients, 2.0), alike=True)
                return places
            except (RuntimeError, TypeError):  # sparse ones among them: the fused call refuses
                roster.plain = False
        pack.add("gradient/norm", tensors.norms(gradients))
        return places

    def read_more(self, pack: Pack, roster: Roster) -> None:
        """Largest magnitude, mean and share of zeros: a few passes over every gradient, for sampled steps."""
        _, gradients = held(roster)
        pack.add("gradient/max", tensors.largest(gradients))
        pack.add("gradient/mean", tensors.means(gradients))
        pack.add("gradient/zeros", tensors.zero_shares(gradients))

    def close(self) -> None: ...


def held(roster: Roster) -> tuple[list[int], list[Tensor]]:
    """The gradients that are there now, and whose they are."""
    found = [p.grad for p in roster.parameters]
    gradients = [g for g in found if g is not None]
    if len(gradients) == len(found):
        return list(range(len(found))), gradients
    return [at for at, g in enumerate(found) if g is not None], gradients


def fingerprints(roster: Roster) -> list[tuple[int, int] | None]:
    """For each parameter which gradient it holds, and in which version: what differs afterwards was changed between."""
    try:
        return [None if (g := p.grad) is None else (id(g), g._version) for p in roster.parameters]
    except RuntimeError:  # made in inference mode, they have no versions
        return [None if (g := p.grad) is None else (id(g), 0) for p in roster.parameters]
