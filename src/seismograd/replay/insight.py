"""Finite trouble: where a gradient grows or fades on its way back, and which samples carry the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from seismograd.replay.glue import Glue
from seismograd.replay.numbers import tensors_in
from seismograd.replay.values import Values

_SHOWN = 3

LOSSES = ("loss", "loss_forward", "loss2d_forward", "loss_nd", "entropy", "with_logits", "kl_div", "cross_entropy_loss")
"""How the names of torch's losses end."""


@dataclass(slots=True)
class Passage:
    """A module's call, and the norm of the gradient at its output and at its input."""

    module: str
    leaves: float = math.nan
    """At the input: what it passes on to what came before."""
    arrives: float = math.nan

    @property
    def gain(self) -> float:
        if not self.arrives > 0.0 or not self.leaves >= 0.0:
            return math.nan
        return self.leaves / self.arrives


@dataclass
class Passages:
    """Listens to a second run: the gradient's norm before and after every module that has no children."""

    names: dict[int, str]
    found: list[Passage] = field(default_factory=list)

    def after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        name = self.names.get(id(module))
        if name is None or next(module.children(), None) is not None:
            return
        passage = Passage(name)
        given = [tensor for _, tensor in tensors_in(args) if tensor.requires_grad]
        made = [tensor for _, tensor in tensors_in(output) if tensor.requires_grad]
        if not given or not made or given[0] is made[0]:
            return
        self.found.append(passage)

        def arrives(gradient: Tensor) -> None:
            passage.arrives = float(torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32))

        def leaves(gradient: Tensor) -> None:
            passage.leaves = float(torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32))

        made[0].register_hook(arrives)  # type: ignore[no-untyped-call]
        given[0].register_hook(leaves)  # type: ignore[no-untyped-call]

    def evidence(self) -> dict[str, Any]:
        """The modules that change the gradient's norm most, and the norm on its way, from the loss to the input."""
        known = [one for one in self.found if math.isfinite(one.gain) and one.gain > 0.0]
        if not known:
            return {}
        most = max(known, key=lambda one: one.gain)
        least = min(known, key=lambda one: one.gain)
        told = sorted(known, key=lambda one: -abs(math.log(one.gain)))[:_SHOWN]
        way = known[::-1]
        return {
            "largest_gain": {"module": most.module, "gain": round(most.gain, 4)},
            "smallest_gain": {"module": least.module, "gain": round(least.gain, 4)},
            "gains": [{"module": one.module, "gain": round(one.gain, 4)} for one in told],
            "gradient_at_output": way[0].arrives,
            "gradient_at_input": way[-1].leaves,
        }


def heaviest(losses: Tensor) -> dict[str, Any]:
    """The samples that carry most of the loss: each one's share of all."""
    if losses.ndim < 1 or len(losses) < 2:
        return {}
    each = losses.detach().float().reshape(len(losses), -1).sum(1).abs()
    total = float(each.sum())
    if not 0.0 < total < math.inf:
        return {}
    top = torch.topk(each, min(_SHOWN, len(each)))
    shares = [
        {"sample": int(at), "share": round(float(value) / total, 4)}
        for value, at in zip(top.values.tolist(), top.indices.tolist(), strict=True)
    ]
    return {"samples": shares, "of_samples": len(each)}


def unreduced(glue: Glue) -> Tensor | None:
    """The loss of every element, where the op that made one number of them is known."""
    values = Values(glue)
    waiting = [edge for edge in glue.starts if edge[0] == "node"]
    for _ in range(20):
        if not waiting:
            return None
        number = waiting.pop(0)[1]
        node = glue.nodes[number]
        name = node.op.partition(".")[2]
        if name.endswith(LOSSES) and "reduction" in node.scalars:
            return values.again(number, reduction=0)
        if name in ("mean", "sum") and "dim" not in node.scalars:
            whole = values.of(node.edges[0])
            if whole is not None and whole.ndim:
                return whole
        waiting += [edge for edge in node.edges if edge[0] == "node"]
    return None
