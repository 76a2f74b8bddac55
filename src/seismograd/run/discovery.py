"""Finds out what a backward pass trains: the leaves of its graph, their optimizers, their models."""

from __future__ import annotations

import gc
import inspect
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd import living
from seismograd.probes.shards import gathered, shards

_MOST_NODES = 5_000
"""So much of a graph is looked at, nearest to the loss first. A node that Python has seen is freed by recursion: with
tens of thousands of them in a row the stack would not do."""

_MANY = 16
"""More optimizers than that are one for each parameter, and step inside backward: they need not be known by name."""

Parents = defaultdict[int, list[nn.Module]]
"""By the id of a module, those that hold it."""


@dataclass(frozen=True)
class Found:
    """What belongs together in one training."""

    models: dict[str, nn.Module]
    optimizers: list[Optimizer]
    loose: list[Tensor]
    """Leaves that are no module's and no optimizer's, and may be trained all the same."""

    def parameters(self) -> Iterable[Tensor]:
        for model in self.models.values():
            yield from model.parameters()
            yield from (copy for copy, _ in gathered(model.modules()))
        for optimizer in self.optimizers:
            yield from held_by(optimizer)
        yield from self.loose


def held_by(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def leaves_of(roots: Sequence[Any]) -> list[Tensor]:
    """The tensors that a backward from `roots` gives gradients to, each once."""
    waiting: deque[Any] = deque()
    leaves: dict[int, Tensor] = {}
    for root in roots:
        function = getattr(root, "grad_fn", None)
        if function is not None:
            waiting.append(function)
        elif isinstance(root, Tensor) and root.requires_grad:
            leaves[id(root)] = root
        elif hasattr(root, "function"):  # a GradientEdge
            waiting.append(root.node if hasattr(root, "node") else root.function)
    seen = set(waiting)
    while waiting and len(seen) < _MOST_NODES:
        function = waiting.popleft()
        variable = getattr(function, "variable", None)
        if isinstance(variable, Tensor):
            leaves[id(variable)] = variable
        for following, _ in function.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return list(leaves.values())


def discover(leaves: Sequence[Tensor], optimizer: Optimizer | None = None) -> Found:
    """Optimizers and models that these leaves belong to, from one look through all objects of the process.

    With an optimizer given, the rest of what it holds counts as well.
    """
    wanted = {id(leaf) for leaf in leaves}
    if optimizer is not None:
        wanted |= {id(parameter) for parameter in held_by(optimizer)}
    modules, optimizers = _modules_and_optimizers(wanted)
    lasting = shards(modules)
    leaves = [lasting.get(id(leaf), leaf) for leaf in leaves]
    wanted |= {id(leaf) for leaf in leaves}
    ours = [each for each in optimizers if any(id(parameter) in wanted for parameter in held_by(each))]
    if optimizer is not None and not any(each is optimizer for each in ours):
        ours.append(optimizer)
    held = {id(parameter) for each in ours for parameter in held_by(each)}
    parents = _parents(modules)
    models = _roots(modules, parents, wanted | held)
    inside = {id(lasting.get(id(held), held)) for model in models for held in model.parameters()}
    loose = [leaf for leaf in leaves if id(leaf) not in held and id(leaf) not in inside]
    if held or inside:  # next to these a bare tensor is an input: of a checkpoint, an attack, a gradient penalty
        loose = [leaf for leaf in loose if isinstance(leaf, nn.Parameter)]
    return Found(_named(models, parents), ours if len(ours) <= _MANY else [], loose)


def _modules_and_optimizers(wanted: set[int]) -> tuple[list[nn.Module], list[Optimizer]]:
    """Those among the objects made lately, if that is all of what is wanted; else those among all objects."""
    modules, optimizers = _among(gc.get_objects(0) + gc.get_objects(1))  # a display of both would hold itself
    owned = {id(parameter) for module in modules for parameter in module._parameters.values()}
    held = {id(parameter) for optimizer in optimizers for parameter in held_by(optimizer)}
    if wanted <= owned and wanted <= held:
        return modules, optimizers
    return _among(living.objects())


def _among(things: Iterable[Any]) -> tuple[list[nn.Module], list[Optimizer]]:
    modules: list[nn.Module] = []
    optimizers: dict[int, Optimizer] = {}
    for thing in things:
        kind = type(thing)  # not isinstance: that runs code of lazy proxies
        if issubclass(kind, nn.Module):
            if "_parameters" in thing.__dict__ and "_modules" in thing.__dict__:
                modules.append(thing)
        elif issubclass(kind, Optimizer):
            inner = thing.__dict__.get("optimizer", thing)  # a wrapper's own hooks never fire
            if isinstance(inner, Optimizer) and "param_groups" in inner.__dict__:
                optimizers[id(inner)] = inner
    return modules, list(optimizers.values())


def _parents(modules: Iterable[nn.Module]) -> Parents:
    parents: Parents = defaultdict(list)
    for module in modules:
        for child in module._modules.values():
            if child is not None:
                parents[id(child)].append(module)
    return parents


def _roots(modules: Sequence[nn.Module], parents: Parents, wanted: set[int]) -> list[nn.Module]:
    """The outermost modules that have a forward pass and hold any of the wanted parameters, as few as will do."""
    outermost: dict[int, nn.Module] = {}
    seen: set[int] = set()
    waiting = [m for m in modules if any(p is not None and id(p) in wanted for p in m._parameters.values())]
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        above = [parent for parent in parents[id(module)] if _has_forward(parent)]
        containers = [parent for parent in parents[id(module)] if not _has_forward(parent)]
        beyond = [p for c in containers for p in _beyond(c, parents)]
        if above or beyond:
            waiting += above + beyond
        else:
            outermost[id(module)] = module
    sets = [(module, {id(p) for p in module.parameters()} & wanted) for module in outermost.values()]
    sets.sort(key=lambda pair: -len(pair[1]))  # stable: among equals the older object
    chosen: list[nn.Module] = []
    covered: set[int] = set()
    for module, held in sets:
        if held - covered:
            chosen.append(module)
            covered |= held
    order = {id(module): at for at, module in enumerate(modules)}
    return sorted(chosen, key=lambda module: order[id(module)])


def _beyond(container: nn.Module, parents: Parents) -> list[nn.Module]:
    """The modules with a forward pass that hold this `ModuleList` or the like, through others of its kind."""
    result: list[nn.Module] = []
    waiting, seen = [container], set[int]()
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        for parent in parents[id(module)]:
            (result if _has_forward(parent) else waiting).append(parent)
    return result


def _has_forward(module: nn.Module) -> bool:
    return inspect.getattr_static(type(module), "forward") is not nn.Module.forward


def _named(models: Sequence[nn.Module], parents: Parents) -> dict[str, nn.Module]:
    """Models by the names that the script itself has for them, else by their classes; a single one needs none."""
    if len(models) == 1:
        return {"": models[0]}
    named: dict[str, nn.Module] = {}
    for model in models:
        name = free = _name_in_script(model) or _name_in_parent(model, parents) or type(model).__name__
        number = 2
        while free in named:
            free, number = f"{name}{number}", number + 1
        named[free] = model
    return named


def _name_in_script(model: nn.Module) -> str | None:
    names = list(vars(sys.modules["__main__"]).items())
    return next((name for name, value in names if value is model and not name.startswith("_")), None)


def _name_in_parent(model: nn.Module, parents: Parents) -> str | None:
    for parent in parents[id(model)]:
        for name, child in parent._modules.items():
            if child is model:
                return name
    return None
