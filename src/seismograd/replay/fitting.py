"""What a forward pass keeps for backward, measured on a few samples of the batch, and what would fit.

The few are run for real: their memory is a small part of the batch's, and everything is put back. Two sizes tell what
each sample costs and what is there whatever the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from seismograd import patches
from seismograd.replay.numbers import mapped, tensors_in
from seismograd.replay.rewind import Rewind, as_it_was, silenced
from seismograd.replay.second_look import may_be_noticed
from seismograd.replay.second_runs import unwrapped
from seismograd.replay.surroundings import Autocast

_LEFT_OVER = 0.85
"""This part of what is free may be used: allocators do not use every byte."""

_SMALL = 2**24

_FEW = ((2, 4), (1, 2))
"""The sizes that are tried; a batch norm refuses a single sample."""


@dataclass(frozen=True)
class Pass:
    """A call of a model, as far as it is needed to make it again with fewer samples."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    autocast: Autocast

    @property
    def batch(self) -> int:
        """Its samples: the first size of its first tensor that has one."""
        return next((int(one.shape[0]) for _, one in tensors_in((self.args, self.kwargs)) if one.ndim), 0)


@dataclass
class Need:
    """Bytes of one forward pass."""

    saved: float = 0.0
    """What autograd keeps for backward, without parameters, buffers and inputs."""
    output: float = 0.0
    sizes: list[float] = field(default_factory=list)
    """Of each tensor, in the order in which they came."""
    by_module: dict[str, float] = field(default_factory=dict)
    """What was saved in each module itself."""
    gave: dict[str, float] = field(default_factory=dict)
    """What each module gave back."""

    def at(self, other: Need, samples: tuple[int, int], size: int) -> Need:
        """Of `size` samples, as this one (of `samples[0]`) and `other` (of `samples[1]`) tell."""
        first, second = samples

        def along(a: float, b: float) -> float:
            return max(0.0, a + (b - a) * (size - first) / (second - first))

        def both(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
            return {name: along(a.get(name, 0.0), b[name]) for name in b}

        return Need(
            along(self.saved, other.saved),
            along(self.output, other.output),
            [along(a, b) for a, b in zip(self.sizes, other.sizes, strict=False)],
            both(self.by_module, other.by_module),
            both(self.gave, other.gave),
        )

    @property
    def peak(self) -> float:
        """At its highest, in the middle of a backward pass: two more of the largest tensor are there."""
        return self.saved + self.output + 2 * max(self.sizes, default=0.0)


@dataclass(frozen=True)
class Fit:
    """What a step of this model keeps at its batch size, and the largest batches that would fit."""

    batch: int
    activations: int
    each: int
    """Of every sample."""
    largest: int
    """The largest batch that fits as things are."""
    by_module: dict[str, int]
    checkpointed: int | None = None
    """`activations`, if each of `blocks` were checkpointed."""
    largest_checkpointed: int | None = None
    blocks: str | None = None
    halved: int | None = None
    """`activations` in bfloat16, under autocast; `None` where it is so already."""
    largest_halved: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def fit(call: Pass, room: float, free: float) -> Fit | None:
    """What would fit into `room` bytes besides parameters, gradients and state; `None` where that cannot be tried.

    `free` bytes are there now, for the few samples and a copy of the buffers.
    """
    batch, module = call.batch, unwrapped(call.module)
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in module.buffers())
    if batch < 1 or buffers > max(_SMALL, free / 4) or _has_company() or may_be_noticed(module):
        return None
    for samples in _FEW:
        if samples[1] > max(2, batch):
            continue
        try:
            return _fit(call, module, batch, samples, room)
        except Exception:  # the user's code, on a batch that it may not expect
            continue
    return None


def _has_company() -> bool:
    """Whether other ranks would have to run it, too: a forward pass may wait for them."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _fit(call: Pass, module: nn.Module, batch: int, samples: tuple[int, int], room: float) -> Fit:
    whole, each = _along(call, module, batch, samples)
    blocks, checkpointed = _checkpointed(module, whole)
    found: dict[str, Any] = {}
    if checkpointed is not None:
        peak, part = whole.peak - whole.saved + checkpointed, checkpointed / whole.saved
        found |= {"checkpointed": int(checkpointed + whole.output), "blocks": blocks}
        found["largest_checkpointed"] = _largest(peak, batch, each * part, room)
    if not any(enabled for _, enabled, _ in call.autocast.kinds):
        halved, each_halved = _along(call, module, batch, samples, next(module.parameters()).device.type)
        found["halved"] = int(halved.saved + halved.output)
        found["largest_halved"] = _largest(halved.peak, batch, each_halved, room)
    return Fit(
        batch=batch,
        activations=int(whole.saved + whole.output),
        each=int(each),
        largest=_largest(whole.peak, batch, each, room),
        by_module={name or "(the model itself)": int(size) for name, size in _heaviest(whole.by_module)},
        **found,
    )


def _along(
    call: Pass, module: nn.Module, batch: int, samples: tuple[int, int], narrow: str | None = None
) -> tuple[Need, float]:
    """What the whole batch needs, and each sample of it."""
    first, second = (need(call, module, batch, size, narrow=narrow) for size in samples)
    whole, more = first.at(second, samples, batch), first.at(second, samples, batch + 1)
    return whole, more.peak - whole.peak


def _largest(peak: float, batch: int, each: float, room: float) -> int:
    fixed = max(0.0, peak - each * batch)
    return max(0, int((_LEFT_OVER * room - fixed) / each)) if each > 0 else batch


def _heaviest(by_module: Mapping[str, float], most: int = 8) -> list[tuple[str, float]]:
    return sorted(by_module.items(), key=lambda item: -item[1])[:most]


def _checkpointed(module: nn.Module, whole: Need) -> tuple[str | None, float | None]:
    """Blocks in a row, each of which would keep only its input, and be computed again one at a time."""
    best: tuple[str | None, float | None] = (None, None)
    for name, container in module.named_modules():
        if not isinstance(container, (nn.Sequential, nn.ModuleList)) or len(container) < 2:
            continue
        blocks = [f"{name}.{child}" if name else child for child, _ in container.named_children()]
        kept = [_inside(whole.by_module, block) for block in blocks]
        given = sum(whole.gave.get(block, 0.0) for block in blocks)
        checkpointed = whole.saved - sum(kept) + max(kept) + given
        if checkpointed < 0.9 * whole.saved and (best[1] is None or checkpointed < best[1]):
            best = (name or "the model", checkpointed)
    return best


def _inside(by_module: Mapping[str, float], name: str) -> float:
    return sum(size for each, size in by_module.items() if each == name or each.startswith(f"{name}."))


class _Follower:
    """Knows in which module the forward pass is, and how much each gave back."""

    def __init__(self, module: nn.Module, into: Need) -> None:
        self._names = {id(each): name for name, each in module.named_modules()}
        self._inside: list[str] = []
        self._into = into

    @property
    def name(self) -> str:
        return self._inside[-1] if self._inside else ""

    def module_starts(self, module: nn.Module) -> None:
        self._inside.append(self._names.get(id(module), self.name))

    def module_ended(self, output: Any = None) -> None:
        sizes = [tensor.numel() * tensor.element_size() for _, tensor in tensors_in(output)]
        self._into.sizes += sizes
        name = self._inside.pop()
        self._into.gave[name] = self._into.gave.get(name, 0) + sum(sizes)


def need(call: Pass, module: nn.Module, batch: int, size: int, *, narrow: str | None = None) -> Need:
    """Of the call's first `size` samples; under autocast to bfloat16 on the device `narrow` if one is given."""
    found = Need()
    follower = _Follower(module, found)
    given = [tensor for _, tensor in tensors_in((call.args, call.kwargs))]
    known = {_key(tensor) for tensor in (*module.parameters(), *module.buffers(), *given)}

    def some(tensor: Tensor) -> Tensor:
        part = tensor.detach()
        if tensor.ndim and tensor.shape[0] == batch:
            part = part[:size] if size <= batch else torch.cat([part] * size)[:size]
            known.add(_key(part))
        return part.requires_grad_(tensor.requires_grad)

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided and _key(tensor) not in known:
            known.add(_key(tensor))
            bytes_ = tensor.untyped_storage().nbytes()
            found.saved += bytes_
            found.sizes.append(bytes_)
            found.by_module[follower.name] = found.by_module.get(follower.name, 0) + bytes_
        return tensor

    autocast = Autocast(((narrow, True, torch.bfloat16),), True) if narrow else call.autocast
    with patches.muted(follower), silenced(), Rewind([module], given), as_it_was(autocast):
        args, kwargs = mapped(call.args, some), mapped(call.kwargs, some)
        with saved_tensors_hooks(note, _same):
            output = module(*args, **kwargs)
        outputs = [tensor for _, tensor in tensors_in(output) if _key(tensor) not in known]
        found.output = sum(tensor.untyped_storage().nbytes() for tensor in outputs)
    return found


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else id(tensor)


def _same(tensor: Tensor) -> Tensor:
    return tensor
