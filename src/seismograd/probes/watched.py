"""What is under watch: the parameters, their names, and the optimizers that hold them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.optim import Optimizer


class Watched:
    """The floating-point parameters of the models and optimizers, each once, in the order of depth.

    Without given optimizers, those that hold our parameters are found when they step.
    """

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Sequence[Optimizer] | None = None) -> None:
        self.models = dict(models)
        self.optimizers = list(optimizers or ())
        self._finds = optimizers is None
        self._strangers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._asked = 0
        kinds = {type(module).__name__ for model in models.values() for module in model.modules()}
        self._sharded = any(kind.startswith(("FSDP", "FullyShardedDataParallel")) for kind in kinds)
        self.refresh()

    # -- parameters ----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Reads models and optimizers anew: parameters come, go, and are replaced."""
        self.names: tuple[str, ...] = ()
        self.parameters: list[Tensor] = []
        self.owners: list[int] = []
        """For each parameter the index of its optimizer, -1 where none holds it."""
        self.fan_in: list[int] = []
        """For each parameter how many inputs a unit of it has; 0 where the question makes no sense."""
        self.incomplete = False
        """Some parameter is still uninitialised: a lazy module before its first forward."""
        names: list[str] = []
        holder: dict[int, int] = {}
        self._groups: dict[int, dict[str, Any]] = {}
        for index, optimizer in enumerate(self.optimizers):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    holder.setdefault(id(parameter), index)
                    self._groups.setdefault(id(parameter), group)
        seen: set[int] = set()
        for prefix, model in self.models.items():
            for module_name, module in model.named_modules():
                for name, parameter in module.named_parameters(recurse=False):
                    self.incomplete |= isinstance(parameter, UninitializedTensorMixin)
                    if id(parameter) in seen or not _readable(parameter):
                        continue
                    seen.add(id(parameter))
                    path = ".".join(part for part in (prefix, module_name, name) if part)
                    names.append(path.replace("_orig_mod.", ""))
                    self.parameters.append(parameter)
                    self.owners.append(holder.get(id(parameter), -1))
                    self.fan_in.append(_fan_in(module, name, parameter))
        for index, optimizer in enumerate(self.optimizers):
            for group_index, group in enumerate(optimizer.param_groups):
                for place, parameter in enumerate(group["params"]):
                    if id(parameter) in seen or not (parameter.is_floating_point() or parameter.is_complex()):
                        continue
                    seen.add(id(parameter))
                    names.append(f"optimizer{index}.{group_index}.{place}")
                    self.parameters.append(parameter)
                    self.owners.append(index)
                    self.fan_in.append(0)
        self.names = tuple(names)
        self.sizes = [parameter.numel() for parameter in self.parameters]
        device = self.parameters[0].device if self.parameters else None
        self.plain = all(
            p.dtype == torch.float32 and p.device == device and not hasattr(p, "_local_tensor") for p in self.parameters
        )
        """All are fp32 on one device: one fused call reads their gradients, unless some turn out sparse."""
        self._known = seen
        self._signature = self._sign()

    def release(self) -> None:
        """Lets go of models, parameters and optimizers: the run is over."""
        self.models, self.optimizers, self.parameters, self._groups = {}, [], [], {}

    def group_of(self, at: int) -> dict[str, Any] | None:
        """The param group that holds the parameter with this index."""
        return self._groups.get(id(self.parameters[at]))

    def changed(self) -> bool:
        """Whether an optimizer got or lost parameters since the last refresh: a look at lengths, every step."""
        return self._signature != self._sign()

    def replaced(self) -> bool:
        """Whether a model's parameters are others than before: a look at each, now and then.

        Never under FSDP, which swaps its parameters for gathered ones and frees those again.
        """
        if self._sharded:
            return False
        return any(id(p) not in self._known and _readable(p) for m in self.models.values() for p in m.parameters())

    def _sign(self) -> list[int]:
        return [len(group["params"]) for optimizer in self.optimizers for group in optimizer.param_groups]

    # -- optimizers ----------------------------------------------------------------------------------------------

    def index_of(self, optimizer: Optimizer) -> int | None:
        """Which of ours it is; one that holds our parameters becomes ours, if none was given."""
        for at, known in enumerate(self.optimizers):
            if known is optimizer:
                return at
        if not self._finds or not self.holds(optimizer):
            return None
        return self._adopt(optimizer)

    def holds(self, optimizer: Optimizer) -> bool:
        """Whether any of our parameters is the optimizer's."""
        if optimizer in self._strangers:
            return False
        if any(id(p) in self._known for group in optimizer.param_groups for p in group["params"]):
            return True
        if self.replaced():
            self.refresh()
            return self.holds(optimizer)
        self._strangers.add(optimizer)
        return False

    def search(self) -> bool:
        """Looks, twice in a run, through all objects for an optimizer of ours that has not stepped yet."""
        self._asked += 1
        if not self._finds or self._asked not in (1, 16):
            return False
        for thing in gc.get_objects():
            if issubclass(type(thing), Optimizer):  # not isinstance: that runs code of lazy proxies
                inner = getattr(thing, "optimizer", thing)
                if isinstance(inner, Optimizer) and hasattr(inner, "param_groups") and self.holds(inner):
                    self._adopt(inner)
        return bool(self.optimizers)

    def _adopt(self, optimizer: Optimizer) -> int:
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for at, known in enumerate(self.optimizers):
            if any(id(p) in mine for group in known.param_groups for p in group["params"]):
                self.optimizers[at] = optimizer  # it takes the place of one that was there before
                break
        else:
            self.optimizers.append(optimizer)
            at = len(self.optimizers) - 1
        self.refresh()
        return at


def _readable(parameter: Tensor) -> bool:
    if isinstance(parameter, UninitializedTensorMixin) or not isinstance(parameter, nn.Parameter):
        return False  # `functional_call` lends a model tensors that are not its own
    return parameter.is_floating_point() or parameter.is_complex()


_DENSE_LAYERS = (nn.Linear, nn.modules.conv._ConvNd)


def _fan_in(module: nn.Module, name: str, parameter: Tensor) -> int:
    if name == "weight" and isinstance(module, _DENSE_LAYERS) and parameter.ndim >= 2:
        return max(1, parameter[0].numel())
    return 0
