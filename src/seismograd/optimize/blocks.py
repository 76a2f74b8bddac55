"""The repeated blocks of a model, found by its structure: what is worth computing again in backward.

What a block keeps for backward grows with the operations in it, and a block that is computed again keeps its inputs
only. So a choice of blocks costs one for each of them, all that lies outside of them, and the largest of them, which is
there while its own backward runs: the choice with the lowest cost is taken, whatever its parts are called.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
"""What holds modules and is never called."""

_OWN_FORWARD = 2.0
"""About the tensors that a forward method keeps besides those of its modules: functions, residual sums."""

_GAIN = 0.9
"""A choice has to bring the cost down to this part."""


@dataclass(frozen=True)
class Block:
    """A module that is computed again in backward, or, of an `nn.Sequential`, each of its `segments`."""

    name: str
    module: nn.Module
    segments: tuple[tuple[int, int], ...] = ()

    @property
    def names(self) -> list[str]:
        inner = f"{self.name}." if self.name else ""
        return [f"{inner}{first}-{last - 1}" for first, last in self.segments] or [self.name]


def blocks_of(model: nn.Module) -> list[Block]:
    """The blocks of a model whose recomputation saves most; none where nothing repeats and nothing is long."""
    weights: dict[int, float] = {}
    total = _weigh(model, weights)
    names: dict[int, str] = {}
    for name, module in model.named_modules():
        names[id(module)] = name
    chosen: list[nn.Module] = []
    cost = total
    candidates = _repeated(model)
    while True:
        best: tuple[float, list[nn.Module]] | None = None
        for group in candidates:
            more = [*chosen, *_apart_from(group, chosen)]
            if len(more) < len(chosen) + 2:
                continue
            would_be = _cost(more, total, weights)
            if would_be <= _GAIN * cost and (best is None or would_be < best[0]):
                best = would_be, more
        if best is None:
            break
        cost, chosen = best
    found = [Block(names[id(module)], module) for module in chosen]
    return _segmented(model, names, found, cost, weights)


def _weigh(module: nn.Module, weights: dict[int, float]) -> float:
    """About how many tensors a call of this module keeps for backward; each module counts once, however often held."""
    if id(module) in weights:
        return 0.0
    weights[id(module)] = 0.0
    children = sum(_weigh(child, weights) for child in module.children())
    if isinstance(module, (nn.Sequential, nn.Identity, *_CONTAINERS)):
        own = 0.0
    elif _is_torchs(module) and not any(True for _ in module.children()):
        own = 1.0
    else:
        own = _OWN_FORWARD
    weights[id(module)] = own + children
    return own + children


def _repeated(model: nn.Module) -> list[list[nn.Module]]:
    """Groups of modules that are alike, and none of which is inside of another of the group."""
    groups: defaultdict[Any, list[nn.Module]] = defaultdict(list)
    for module in model.modules():
        if module is not model and not isinstance(module, _CONTAINERS) and not _is_small(module):
            groups[_kind(module)].append(module)
    return [apart for group in groups.values() if len(apart := _outermost(group)) > 1]


def _is_small(module: nn.Module) -> bool:
    """Whether it keeps little besides its input: a single layer of torch's."""
    return _is_torchs(module) and sum(1 for _ in module.modules()) == 1


def _kind(module: nn.Module) -> Any:
    """What alike modules have in common: their class, and for an `nn.Sequential` the classes inside."""
    if isinstance(module, nn.Sequential):
        return (type(module), *(_kind(child) for child in module.children()))
    return type(module)


def _is_torchs(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _outermost(group: Sequence[nn.Module]) -> list[nn.Module]:
    inner = {id(part) for module in group for part in module.modules() if part is not module}
    return [module for module in group if id(module) not in inner]


def _apart_from(group: Iterable[nn.Module], chosen: Sequence[nn.Module]) -> list[nn.Module]:
    """Those that neither are inside of a chosen one nor have one inside."""
    taken = {id(module) for module in chosen}
    inside = {id(part) for module in chosen for part in module.modules()}
    return [
        module
        for module in group
        if id(module) not in inside and not any(id(part) in taken for part in module.modules())
    ]


def _cost(chosen: Sequence[nn.Module], total: float, weights: dict[int, float]) -> float:
    own = [weights[id(module)] for module in chosen]
    return total - sum(own) + len(own) + max(own)


def _segmented(
    model: nn.Module, names: dict[int, str], found: list[Block], cost: float, weights: dict[int, float]
) -> list[Block]:
    """With the long `nn.Sequential`s besides, each in about as many segments as there are modules in one of them."""
    taken = [block.module for block in found]
    long = [module for module in model.modules() if type(module).forward is nn.Sequential.forward and len(module) > 3]  # type: ignore[arg-type]
    for module in _apart_from(long, taken):
        weight = weights[id(module)]
        inner = [weights[id(child)] for child in module.children()]
        segments = _segments(len(inner))
        largest = max(sum(inner[first:last]) for first, last in segments)
        would_be = cost - weight + len(segments) + largest
        if would_be <= _GAIN * cost and not any(module in set(other.module.modules()) for other in found):
            cost = would_be
            found.append(Block(names[id(module)], module, segments))
    return found


def _segments(length: int) -> tuple[tuple[int, int], ...]:
    number = max(2, round(math.sqrt(length)))
    edges = [round(at * length / number) for at in range(number + 1)]
    return tuple(pairwise(edges))
