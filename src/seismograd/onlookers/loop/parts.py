"""The parts of a model that behave differently in training and in evaluation mode, and those that are frozen."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from seismograd.probes.watched import Watched, weight_of

_NAMES = ("dropout", "droppath", "stochasticdepth")
"""Classes of others that are called like this drop something, by a rate of one of these names:"""
_RATES = ("p", "drop_prob", "drop_rate")

_ANEW = 64
"""After so many calls of a model its parts are looked for anew: they come, go, and are frozen."""


class Part:
    """A module that behaves differently in the two modes."""

    __slots__ = ("_module", "kind", "name")

    def __init__(self, name: str, module: nn.Module, kind: str) -> None:
        self.name, self.kind = name, kind
        self._module = weakref.ref(module)

    def live(self) -> bool:
        module = self._module()
        return module is not None and module.training

    def matters(self) -> bool:
        """Whether training needs it live: not a norm that is frozen."""
        module = self._module()
        weight = weight_of(module) if module is not None and self.kind == "norm" else None
        return weight is None or bool(weight.requires_grad)

    def resets(self) -> bool:
        return self.kind == "norm" and getattr(self._module(), "momentum", 0.0) is None


class Model:
    """What is known of a module that was called: its parts, its frozen norms, who trains it."""

    def __init__(self, module: nn.Module, watched: Watched) -> None:
        roster = self._roster = watched.roster
        self._calls = 0
        names = {
            id(inner): ".".join(part for part in (prefix, name) if part).replace("_orig_mod.", "")
            for prefix, model in watched.models.items()
            for name, inner in model.named_modules()
        }
        mine = {id(parameter) for parameter in module.parameters()}
        held = [{id(roster.parameters[at]) for at in members} & mine for members in roster.members]
        self.owners = {index for index, theirs in enumerate(held) if theirs}
        """The optimizers that hold parameters of it."""
        trained = set().union(*held)
        sizes = [(p.numel(), id(p) in trained and p.requires_grad) for p in module.parameters() if _is_real(p)]
        self.share = sum(size for size, is_trained in sizes if is_trained) / max(1, sum(size for size, _ in sizes))
        """How much of it is trained."""
        self.parts: list[Part] = []
        self.frozen: list[Norm] = []
        whole = not any(parameter.requires_grad for parameter in module.parameters())
        before: Tensor | None = None
        for path, inner in module.named_modules():
            kind = _kind_of(inner)
            name = names.get(id(inner), path) or type(inner).__name__
            if kind is not None:
                self.parts.append(Part(name, inner, kind))
            weight = weight_of(inner)
            if isinstance(inner, _NORMS):
                frozen = weight is not None and not weight.requires_grad
                if (
                    kind == "norm"
                    and frozen
                    and (whole or self.owners)
                    and (before is None or not before.requires_grad)
                ):
                    self.frozen.append(Norm(name, inner, before))
            elif weight is not None and _is_real(weight) and weight.ndim > 1:
                before = weight

    def is_old(self, watched: Watched) -> bool:
        self._calls += 1
        return self._calls > _ANEW or self._roster is not watched.roster

    def live(self) -> bool:
        return any(part.live() for part in self.parts)

    def resets(self) -> bool:
        return any(part.resets() for part in self.parts)


class Norm:
    """A norm whose own weights and whose layer before it are frozen."""

    __slots__ = ("_before", "_module", "name")

    def __init__(self, name: str, module: nn.Module, before: Tensor | None) -> None:
        self.name = name
        self._module = weakref.ref(module)
        self._before = None if before is None else weakref.ref(before)

    def moves(self) -> bool:
        """Whether it is in training mode, and still frozen."""
        module: Any = self._module()
        before = None if self._before is None else self._before()
        if module is None or not module.training or getattr(module, "momentum", None) == 0.0:
            return False
        weight = weight_of(module)
        return not ((weight is not None and weight.requires_grad) or (before is not None and before.requires_grad))

    def values(self) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Mean, variance, some of the weights, and whether it looks as if it had seen one batch at most."""
        module: Any = self._module()
        before = None if self._before is None else self._before()
        if module is None or module.running_mean is None:
            return None
        weights = [w.detach().reshape(-1)[:64].float() for w in (weight_of(module), before) if isinstance(w, Tensor)]
        seen = module.num_batches_tracked
        kept = 1.0 - (0.0 if module.momentum is None else module.momentum)
        fresh = module.running_var.min() >= kept - 1e-3
        fresh = fresh & (seen <= 1) if isinstance(seen, Tensor) else fresh
        return module.running_mean.clone(), module.running_var.clone(), torch.cat(weights), fresh


class Frozen:
    """How the frozen norms of one model move from step to step."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._steps, self._told, self._since, self._heard, self._called = 0, 0, -1, 0, False
        self._norms: list[Norm] = []
        self._first: list[tuple[Tensor, Tensor, Tensor, Tensor] | None] = []

    def meet(self, norms: list[Norm]) -> None:
        """The model is called: these are in training mode although they are frozen."""
        if not norms:
            self._clear()
            return
        if [norm.name for norm in norms[:3]] != [norm.name for norm in self._norms[:3]]:
            self._clear()
            self._first = [norm.values() for norm in norms[:3]]
        self._norms, self._called = norms, True

    def stepped(self) -> None:
        self._heard += self._called
        self._called = False

    def is_due(self, step: int) -> bool:
        if not self._heard:
            return False
        self._since = step if self._since < 0 else self._since
        self._steps = step - self._since + 1
        return self._heard >= 3 and self._steps >= max(5, 2 * self._told)

    def measure(self) -> list[Tensor]:
        """For each: the shift of its mean in deviations, of its variance in powers of e, of a weight; was it fresh?"""
        self._told = self._steps
        shifts, ratios, weights, fresh = [], [], [], []
        for norm, first in zip(self._norms, self._first, strict=False):
            now = norm.values()
            if first is None or now is None or now[2].shape != first[2].shape:
                continue
            scale = first[1].float() + 1e-5
            shifts.append(((now[0] - first[0]).float() / scale.sqrt()).abs().mean())
            ratios.append(((now[1].float() + 1e-5) / scale).log().abs().mean())
            weights.append((now[2] - first[2]).abs().max())
            fresh.append(first[3])
        return [*shifts, *ratios, *weights, *fresh]

    def told(self, numbers: list[float]) -> dict[str, Any]:
        count = len(numbers) // 4
        return {
            "steps": self._steps,
            "norms": [norm.name for norm in self._norms],
            "shift": max(numbers[:count], default=0.0),
            "ratio": max(numbers[count : 2 * count], default=0.0),
            "weights": max(numbers[2 * count : 3 * count], default=0.0),
            "fresh": any(numbers[3 * count :]),
        }


_NORMS = nn.modules.batchnorm._NormBase


def _kind_of(module: nn.Module) -> str | None:
    """`dropout`, `norm`, or None where the mode makes no difference that can be known."""
    if isinstance(module, _NORMS):
        return "norm" if module.track_running_stats and module.running_mean is not None else None
    if isinstance(module, nn.RNNBase):
        return "dropout" if module.dropout > 0 and module.num_layers > 1 else None
    if isinstance(module, nn.MultiheadAttention):
        return "dropout" if module.dropout > 0 else None
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return "dropout" if module.p > 0 else None
    if type(module).__name__.lower().startswith(_NAMES):
        rates = (getattr(module, name, None) for name in _RATES)
        return "dropout" if any(isinstance(rate, float) and rate > 0 for rate in rates) else None
    return None


def _is_real(parameter: Tensor) -> bool:
    return not isinstance(parameter, nn.parameter.UninitializedParameter)
