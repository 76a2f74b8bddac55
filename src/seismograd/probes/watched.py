"""What is under watch: the parameters, their names, and the optimizers that hold them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.optim import Optimizer

from seismograd import living
from seismograd.probes.shards import shards


class Roster:
    """The floating-point parameters of models and optimizers at one time, each once, in the order of depth."""

    def __init__(
        self, models: Mapping[str, nn.Module], optimizers: Sequence[Optimizer], loose: Sequence[Tensor] = ()
    ) -> None:
        self.parameters: list[Tensor] = []
        self.fan_in: list[int] = []
        """For each parameter how many inputs a unit of it has; 0 where the question makes no sense."""
        self.incomplete = False
        """Some parameter is still uninitialised: a lazy module before its first forward."""
        self.members: list[set[int]] = [set() for _ in optimizers]
        """For each optimizer the indices of its parameters."""
        names: list[str] = []
        self._places: dict[int, int] = {}
        for prefix, model in models.items():
            lasting = shards(model.modules())
            for module_name, module in model.named_modules():
                for name, held in module.named_parameters(recurse=False):
                    parameter = lasting.get(id(held), held)
                    self.incomplete |= isinstance(parameter, UninitializedTensorMixin)
                    if id(parameter) not in self._places and _own(parameter):
                        path = ".".join(part for part in (prefix, module_name, name) if part)
                        names.append(path.replace("_orig_mod.", ""))
                        self._add(parameter, _fan_in(module, name, parameter))
        self._groups: dict[int, dict[str, Any]] = {}
        for index, optimizer in enumerate(optimizers):
            for group_index, group in enumerate(optimizer.param_groups):
                for number, parameter in enumerate(group["params"]):
                    if id(parameter) not in self._places:
                        if not _readable(parameter):
                            continue
                        names.append(f"optimizer{index}.{group_index}.{number}")
                        self._add(parameter, 0)
                    place = self._places[id(parameter)]
                    self.members[index].add(place)
                    self._groups.setdefault(place, group)
        for number, tensor in enumerate(loose):
            if id(tensor) not in self._places and _readable(tensor):
                names.append(f"tensor{number}")
                self._add(tensor, 0)
        self.names = tuple(names)
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.precision = [torch.finfo(parameter.dtype).eps for parameter in self.parameters]
        """For each parameter the share of itself by which a number of its dtype can just change."""
        held = set().union(*self.members)
        self.unowned = {place for place in range(len(self.parameters)) if place not in held}
        device = self.parameters[0].device if self.parameters else None
        self.plain = all(
            p.dtype == torch.float32 and p.device == device and not hasattr(p, "_local_tensor") for p in self.parameters
        )
        """All are fp32 on one device: one fused call reads their gradients, unless some turn out sparse."""

    def _add(self, parameter: Tensor, fan_in: int) -> None:
        self._places[id(parameter)] = len(self.parameters)
        self.parameters.append(parameter)
        self.fan_in.append(fan_in)

    def __contains__(self, parameter: Tensor) -> bool:
        return id(parameter) in self._places

    def group_of(self, place: int) -> dict[str, Any] | None:
        """The param group that holds the parameter with this index."""
        return self._groups.get(place)

    def is_weight(self, parameter: Tensor, fan_in: int) -> None:
        """What was not to be seen from its module: a unit of it has so many inputs."""
        place = self._places.get(id(parameter))
        if place is not None:
            self.fan_in[place] = fan_in

    def of(self, owner: int | None) -> set[int] | None:
        """The places that a reading of this optimizer is about, those that nobody holds with the first; `None`: all."""
        if owner is None:
            return None
        return self.members[owner] | self.unowned if owner == 0 else self.members[owner]


class _Gone:
    """Stands where an optimizer was that no longer exists."""

    param_groups: ClassVar[list[dict[str, Any]]] = []


_GONE: Any = _Gone()


class Watched:
    """Models and optimizers, and the roster of their parameters.

    An optimizer that holds some of them becomes ours when it steps, and takes the place of one that held them before.
    Optimizers are held weakly, so that what trains may go when the user lets go of it. `loose` are parameters that are
    no module's and no optimizer's.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Sequence[Optimizer] | None = None,
        loose: Sequence[Tensor] = (),
    ) -> None:
        self.models = dict(models)
        self._loose = list(loose)
        self._optimizers = [weakref.ref(optimizer) for optimizer in optimizers or ()]
        self._given = optimizers is not None
        self._strangers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._asked = 0
        self._used: list[tuple[Tensor, int]] = []  # weights of layers written by hand, with their fan-in
        kinds = {type(module).__name__ for model in models.values() for module in model.modules()}
        self._sharded = any(kind.startswith(("FSDP", "FullyShardedDataParallel")) for kind in kinds)
        self.refresh()

    def refresh(self) -> None:
        """Reads models and optimizers anew: parameters come, go, and are replaced."""
        known = self._used
        self.roster = Roster(self.models, self.optimizers, self._loose)
        for parameter, fan_in in known:
            self.roster.is_weight(parameter, fan_in)
        self._used = [(parameter, fan_in) for parameter, fan_in in known if parameter in self.roster]
        self._lengths = self._measure_groups()

    def is_weight(self, parameter: Tensor, fan_in: int) -> None:
        """A parameter turned out to be the weight of a layer written by hand."""
        if parameter in self.roster:
            self.roster.is_weight(parameter, fan_in)
            self._used.append((parameter, fan_in))

    def release(self) -> None:
        """Lets go of models, parameters and optimizers: the run is over."""
        self.models, self._optimizers, self._loose = {}, [], []
        self.refresh()

    def groups_changed(self) -> bool:
        """Whether an optimizer got or lost parameters since the last refresh: a look at lengths, every step."""
        return self._lengths != self._measure_groups()

    def has_new(self) -> bool:
        """Whether a model has parameters that are not on the roster: a look at each, now and then.

        Never under FSDP, which swaps its parameters for gathered ones and frees those again.
        """
        if self._sharded:
            return False
        return any(p not in self.roster and _own(p) for model in self.models.values() for p in model.parameters())

    def _measure_groups(self) -> list[int]:
        return [len(group["params"]) for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def optimizers(self) -> list[Optimizer]:
        """Ours; one that the user has let go of keeps its place, and holds nothing."""
        return [reference() or _GONE for reference in self._optimizers]

    # -- optimizers ----------------------------------------------------------------------------------------------

    def index_of(self, optimizer: Optimizer) -> int | None:
        """Which of ours it is; one that holds our parameters becomes ours."""
        for at, known in enumerate(self.optimizers):
            if known is optimizer:
                return at
        return self._adopt(optimizer) if self.holds(optimizer) else None

    def holds(self, optimizer: Optimizer) -> bool:
        """Whether any of our parameters is the optimizer's."""
        if optimizer in self._strangers:
            return False
        if any(p in self.roster for group in optimizer.param_groups for p in group["params"]):
            return True
        if self.has_new():
            self.refresh()
            return self.holds(optimizer)
        self._strangers.add(optimizer)
        return False

    def search(self) -> bool:
        """Looks, twice in a run, through all objects for optimizers of ours that have not stepped yet."""
        self._asked += 1
        if self._given or self._asked not in (1, 16):
            return bool(self.optimizers)
        for thing in living.objects():
            if issubclass(type(thing), Optimizer):  # not isinstance: that runs code of lazy proxies
                inner = getattr(thing, "optimizer", thing)
                if isinstance(inner, Optimizer) and hasattr(inner, "param_groups"):
                    self.index_of(inner)
        return bool(self.optimizers)

    def join(self, models: Mapping[str, nn.Module], optimizer: Optimizer) -> None:
        """More models, and the optimizer that trains them."""
        self.models.update(models)
        self._strangers.discard(optimizer)
        self._adopt(optimizer)

    def speak_for(self, optimizer: Optimizer) -> None:
        """Takes this one's learning rates for all: there may be hundreds that step inside backward."""
        self._optimizers.append(weakref.ref(optimizer))

    def _adopt(self, optimizer: Optimizer) -> int:
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        known = self.optimizers
        held = [any(id(p) in mine for group in each.param_groups for p in group["params"]) for each in known]
        gone = [each is _GONE for each in known]
        if any(held) or any(gone):
            at = held.index(True) if any(held) else gone.index(True)
            self._optimizers[at] = weakref.ref(optimizer)
        else:
            self._optimizers.append(weakref.ref(optimizer))
            at = len(self._optimizers) - 1
        self.refresh()
        return at


def _own(parameter: Tensor) -> bool:
    """A parameter of the model's own; `functional_call` lends it tensors that are none."""
    return isinstance(parameter, nn.Parameter) and _readable(parameter)


def _readable(parameter: Tensor) -> bool:
    if isinstance(parameter, UninitializedTensorMixin):
        return False
    if parameter.is_complex():
        return True
    return parameter.is_floating_point() and parameter.dtype.itemsize > 1  # torch computes nothing in float8


_DENSE_LAYERS = (nn.Linear, nn.modules.conv._ConvNd)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def _fan_in(module: nn.Module, name: str, parameter: Tensor) -> int:
    if name == "weight" and isinstance(module, _DENSE_LAYERS) and parameter.ndim >= 2:
        return max(1, parameter.shape[1:].numel())
    if name.startswith(("weight_ih", "weight_hh")) and isinstance(module, _RECURRENT) and parameter.ndim == 2:
        return int(parameter.shape[1])
    return 0


def weight_of(module: nn.Module) -> nn.Parameter | None:
    """Its own parameter `weight`. Never ask for the attribute: a parametrization would compute it, and may change."""
    return next((p for name, p in module.named_parameters(recurse=False) if name == "weight"), None)
