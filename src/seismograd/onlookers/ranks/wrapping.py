"""How the parameters of a model lie on the ranks: replicated by DDP or by hand, sharded, or something else."""

from __future__ import annotations

import re
import weakref
import zlib
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seismograd import living
from seismograd.probes.watched import Roster, Watched
from seismograd.stats.tensors import there

_NUMBERS = re.compile(r"Parameter indices which did not receive grad for rank \d+:((?: \d+)+)")
_SHARDED = ("FSDP", "FullyShardedDataParallel")
_LOCAL = ("localsgd", "local_sgd")


class Wrapping:
    """Knows the wrapper of the watched models, and which of their tensors have to be alike on which ranks.

    `kind` is `ddp`, `fsdp`, `replicas` (plain parameters: whether they are kept alike has to show), or `mixed` where
    ranks differ by design, or may.
    """

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._ddps: list[weakref.ref[DistributedDataParallel]] = []
        self._searched = False
        self._roster: weakref.ref[Roster] | None = None
        self.kind = "mixed"
        self.group = ""
        """Names the ranks that this one is to be like: those with the same group."""
        self.signature = 0
        """The same on ranks that train the same parameters."""
        self.replicated: list[int] = []
        """The places of the parameters that are to be alike."""
        self.names: list[str] = []
        self.foreign: list[str] = []
        """Parameters that the wrapper does not know: they were made, or replaced, after it was."""
        self.buffers: dict[str, Tensor] = {}
        self.buffer_names: list[str] = []
        self.shares: dict[str, float] = {}
        """For each parameter the share of its squared norm that this rank adds to the whole model's."""

    @property
    def ddp(self) -> DistributedDataParallel | None:
        """The wrapper; of several, as a GAN has them, the first."""
        return next(iter(self.ddps), None)

    @property
    def ddps(self) -> list[DistributedDataParallel]:
        """All wrappers that were met."""
        return [ddp for each in self._ddps if (ddp := each()) is not None]

    def met(self, module: nn.Module) -> None:
        """A module of ours was called from outside."""
        if isinstance(module, DistributedDataParallel) and all(each() is not module for each in self._ddps):
            self._ddps = [*(each for each in self._ddps if each() is not None), weakref.ref(module)]
            self._roster = None

    def search(self) -> None:
        """Looks, once, for wrappers in and around what is watched that have not been called from outside yet."""
        if self._searched:
            return
        self._searched = True
        for model in self._watched.models.values():
            for module in model.modules():
                self.met(module)
        if self._ddps:
            return
        inner = {id(module) for model in self._watched.models.values() for module in model.modules()}
        for thing in living.objects():
            if (
                issubclass(type(thing), DistributedDataParallel)
                and id(thing.__dict__.get("_modules", {}).get("module")) in inner
            ):
                self.met(thing)

    def is_inside(self, module: nn.Module) -> bool:
        """Whether the wrapper stands around this module, which was called without it."""
        ddp = self.ddp
        return (
            ddp is not None and module is not ddp and (module is ddp.module or any(module is m for m in ddp.modules()))
        )

    def refresh(self) -> None:
        """Looks at the parameters anew, if others are watched by now."""
        roster = self._watched.roster
        if (self._roster is not None and self._roster() is roster) or not dist.is_initialized():
            return
        self._roster = weakref.ref(roster)
        world = dist.get_world_size()
        kinds = {type(module).__name__ for model in self._watched.models.values() for module in model.modules()}
        sharded = any(kind.startswith(_SHARDED) for kind in kinds)
        tensors = [parameter for parameter in roster.parameters if hasattr(parameter, "placements")]
        ddp, self.group = self.ddp, ""
        if ddp is not None:
            told = {self._of_wrapper(each, world) for each in self.ddps}
            self.kind, self.group = told.pop() if len(told) == 1 else ("mixed", "")
        elif sharded:
            self.kind = "fsdp" if all(_shares_data(each, world) for each in tensors) else "mixed"
        else:
            self.kind = "mixed" if tensors else "replicas"
        flat = "FullyShardedDataParallel" in kinds  # its parameters are plain tensors, and yet shards
        wrappers = self.ddps
        ignored = {name for each in wrappers for name in getattr(each, "parameters_to_ignore", ()) or ()}
        kept_alike = {id(parameter) for each in wrappers for parameter in each.module.parameters()}
        self.replicated, self.shares = [], {}
        for place, (name, parameter) in enumerate(zip(roster.names, roster.parameters, strict=True)):
            copies, whole = (1, False) if flat else _copies(parameter, world)
            self.shares[name] = 1.0 / copies
            if wrappers:  # what no wrapper holds may be each rank's own: a part of a table, a head
                whole = whole and id(parameter) in kept_alike
            elif self.kind == "fsdp":
                whole = whole and hasattr(parameter, "placements")  # `ignored_params` are the program's to keep alike
            if whole and self.kind != "mixed" and not _is_ignored(name, ignored):
                self.replicated.append(place)
        listed = [
            (name, *parameter.shape, str(parameter.dtype))
            for name, parameter in zip(roster.names, roster.parameters, strict=True)
        ]
        self.signature = zlib.crc32(repr(listed).encode())
        self.foreign = [name for each in wrappers for name in self._unknown_to(each, ignored)]
        self.names = [roster.names[place] for place in self.replicated]
        self.buffers = {} if flat or self.kind == "mixed" else dict(self._constant_buffers())
        self.buffer_names = list(self.buffers)

    def without_gradient(self, error: str) -> tuple[list[str], int]:
        """The names of the parameters that DDP's error has by number, and how many of them the model no longer has.

        Their gradients do not tell: most loops have cleared all of them by now.
        """
        ddp, numbers = self.ddp, _NUMBERS.search(error)
        if ddp is None or numbers is None:
            return [], 0
        names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
        known = [each for each in getattr(ddp, "_module_parameters", ()) if each.requires_grad]
        asked = [int(number) for number in numbers[1].split()]
        found = [names.get(id(known[at])) for at in asked if at < len(known)]
        return [name for name in found if name is not None], found.count(None)

    def release(self) -> None:
        """Lets go of everything but the names."""
        self.buffers, self._ddps = {}, []

    def _of_wrapper(self, ddp: DistributedDataParallel, world: int) -> tuple[str, str]:
        hooks = " ".join(str(getattr(hook, "__name__", hook)) for hook, _ in getattr(ddp, "_comm_hooks", ())).lower()
        if any(word in hooks for word in _LOCAL):
            return "mixed", ""
        ranks = dist.get_process_group_ranks(ddp.process_group)
        return "ddp", "" if len(ranks) == world else f"{ranks[0]}+{len(ranks)}"

    def _constant_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Those that are not each rank's own by design: batch norm has the statistics of the rank's own batches."""
        for prefix, model in self._watched.models.items():
            for path, module in model.named_modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
                    continue
                for name, buffer in module.named_buffers(recurse=False):
                    if buffer.is_floating_point() and not hasattr(buffer, "placements") and there(buffer):
                        yield ".".join(part for part in (prefix, path, name) if part), buffer

    def _unknown_to(self, ddp: DistributedDataParallel, ignored: set[str]) -> list[str]:
        known = {id(parameter) for parameter in getattr(ddp, "_module_parameters", ())}
        inside = {id(parameter) for parameter in ddp.module.parameters()} - known
        roster = self._watched.roster
        return [
            name
            for name, parameter in zip(roster.names, roster.parameters, strict=True)
            if id(parameter) in inside and parameter.requires_grad and not _is_ignored(name, ignored)
        ]


def _shares_data(parameter: Any, world: int) -> bool:
    """Whether all ranks have data of their own: sharded once at most, over all of them. Tensor parallel ones do not."""
    shards = sum(not placement.is_replicate() for placement in parameter.placements)
    return bool(parameter.device_mesh.size() == world and shards <= 1)


def _copies(parameter: Tensor, world: int) -> tuple[int, bool]:
    """On how many ranks the very same values lie, and whether on all of them."""
    placements: Any = getattr(parameter, "placements", None)
    if placements is None:
        return world, True
    mesh: Any = parameter.device_mesh  # type: ignore[attr-defined]
    copies = max(1, world // max(1, mesh.size()))
    for dimension, placement in enumerate(placements):
        if placement.is_replicate():
            copies *= mesh.size(dimension)
    return copies, all(placement.is_replicate() for placement in placements)


def _is_ignored(name: str, ignored: set[str]) -> bool:
    return bool(ignored) and any(name == each or name.endswith(f".{each}") for each in ignored)
