"""Blocks that keep only their inputs, and are computed again in backward, exactly as they were the first time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seismograd.optimize.blocks import Block
from seismograd.replay.numbers import mapped, tensors_in
from seismograd.replay.rewind import Rewind
from seismograd.replay.surroundings import Randomness, generators_of

_SMALL = 2**16
"""Buffers with fewer elements are always kept for the second run: batch norm changes its own without a trace."""

Forward = Callable[..., Any]


class Checkpoints:
    """A context in which the blocks of a model are checkpointed. Outside of it nothing of the model is changed."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._ours = [(block.module, _forward_of(block)) for block in blocks]
        self._theirs: list[Any] = []
        self._inside = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._theirs = [module.__dict__.get("forward") for module, _ in self._ours]
                for module, forward in self._ours:
                    module.__dict__["forward"] = forward

    def __exit__(self, *_exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                for (module, _), theirs in zip(self._ours, self._theirs, strict=True):
                    if theirs is None:
                        del module.__dict__["forward"]
                    else:
                        module.__dict__["forward"] = theirs


def _forward_of(block: Block) -> Forward:
    module, forward = block.module, block.module.forward
    if block.segments:
        return _in_segments(module, block.segments, forward)
    return _checkpointed(module, forward, [module])


def _in_segments(module: nn.Module, segments: Sequence[tuple[int, int]], whole: Forward) -> Forward:
    """The forward method of an `nn.Sequential`, segment by segment."""
    children = list(module.children())

    def runs(parts: list[nn.Module]) -> Forward:
        def run(x: Any) -> Any:
            for part in parts:
                x = part(x)
            return x

        return _checkpointed(module, run, parts)

    steps = [runs(children[first:last]) for first, last in segments]

    def forward(x: Any) -> Any:
        if list(module.children()) != children:  # layers were added or taken away
            return whole(x)
        for step in steps:
            x = step(x)
        return x

    return forward


def _checkpointed(owner: nn.Module, forward: Forward, modules: list[nn.Module]) -> Forward:
    everything = list({id(each): each for module in modules for each in module.modules()}.values())
    parts = _Parts(
        everything,
        [module for module in everything if not type(module).__module__.startswith("torch.")],
        generators_of(everything),
    )

    leaves_inputs = False

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        nonlocal leaves_inputs
        if not owner.training or not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        if torch.compiler.is_compiling():  # a compiler keeps what a second run may not change, by itself
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)
        if leaves_inputs:
            return checkpoint(
                forward,
                *args,
                use_reentrant=False,
                preserve_rng_state=False,
                context_fn=lambda: _twice(parts),
                **kwargs,
            )
        call = _Call(forward, args, kwargs)
        output = checkpoint(call, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: _twice(parts))
        call.keep()
        leaves_inputs = not call.writes
        return output

    return checkpointed


class _Call:
    """A call of a block that may write into its inputs, as `nn.ReLU(inplace=True)` does: a second run gets copies of
    those that the first one wrote into. Copies of all others are gone when the first run is over."""

    def __init__(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._forward, self._given = forward, (args, kwargs)
        self._copies: set[int] = set()
        self._kept: Any = None

    def __call__(self) -> Any:
        if self._kept is not None:
            return self._again()
        inputs = {id(one): one for _, one in tensors_in(self._given) if not one.is_inference()}
        copies = {key: (one._version, _copy(one)) for key, one in inputs.items()}
        args, kwargs = self._given
        output = self._forward(*args, **kwargs)
        written = {key: copies[key][1] for key, one in inputs.items() if one._version != copies[key][0]}
        if written:  # and the input is let go: it belongs to the graph that holds this call
            self._given = mapped(self._given, lambda tensor: written.get(id(tensor), tensor))
        self._copies = {id(copy) for copy in written.values()}
        return output

    @property
    def writes(self) -> bool:
        return bool(self._copies)

    def keep(self) -> None:
        """Has autograd keep what a second run needs: counted as such, and refused if it is written into meanwhile."""
        tensors = [one for _, one in tensors_in(self._given) if not one.is_inference()]
        self._kept = _Kept.apply(torch.empty(0, requires_grad=True), *tensors).grad_fn  # type: ignore[no-untyped-call]

    def _again(self) -> Any:
        _ = self._kept.saved_tensors  # an error of torch's if one was written into
        given = self._given
        if self._copies:
            given = mapped(given, lambda tensor: tensor.clone() if id(tensor) in self._copies else tensor)
        return self._forward(*given[0], **given[1])


class _Kept(torch.autograd.Function):
    """Nothing but tensors that are saved for backward."""

    @staticmethod
    def forward(ctx: Any, _graph: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *_gradients: Any) -> Any:
        raise AssertionError("no gradient goes this way")


def _copy(tensor: Tensor) -> Tensor:
    """The values of a tensor, in a graph of their own if it is in one."""
    with torch.no_grad():
        copy = tensor.detach().clone()
    return copy.requires_grad_(tensor.requires_grad)


@dataclass(frozen=True)
class _Parts:
    """The modules of a block."""

    everything: list[nn.Module]
    users: list[nn.Module]
    """Those of the user's classes: their attributes may change when they run."""
    generators: list[Any]


def _twice(parts: _Parts) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    first = _FirstRun(parts)
    return first, _SecondRun(first)


class _FirstRun(AbstractContextManager[None]):
    """Notes what a block finds when it runs: generators, flags, and the buffers that it may change."""

    def __init__(self, parts: _Parts) -> None:
        self.parts = parts
        self.buffers: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> None:
        self.randomness = Randomness.now(own=self.parts.generators)
        self.flags = [module.training for module in self.parts.everything]
        held = {id(one): one for module in self.parts.everything for one in module._buffers.values() if one is not None}
        with torch.no_grad():
            self._all = [(one, one._version, one.clone()) for one in held.values() if not one.is_inference()]

    def __exit__(self, *_exception: object) -> None:
        self.buffers = [
            (one, before)
            for one, version, before in self._all
            if one._version != version or (one.numel() < _SMALL and one.dtype is not torch.bool)
        ]
        del self._all


class _SecondRun(AbstractContextManager[None]):
    """Lets a block find the same again, and leaves no trace of its second run."""

    def __init__(self, first: _FirstRun) -> None:
        self._first = first

    def __enter__(self) -> None:
        first = self._first
        self._rewind = Rewind(first.parts.users, alone=True)
        self._rewind.__enter__()
        with torch.no_grad():
            self._present = [(buffer, buffer._version, buffer.clone()) for buffer, _ in first.buffers]
            for buffer, before in first.buffers:
                buffer.copy_(before)
        self._flags = _set_flags(first.parts.everything, first.flags)
        first.randomness.restore()

    def __exit__(self, *exception: object) -> None:
        with torch.no_grad():
            for buffer, _, present in self._present:
                buffer.copy_(present)
        if self._present:
            torch._C._autograd._unsafe_set_version_counter(
                tuple(buffer for buffer, _, _ in self._present), tuple(version for _, version, _ in self._present)
            )
        _set_flags(self._first.parts.everything, self._flags)
        self._rewind.__exit__(*exception)


def _set_flags(modules: Sequence[nn.Module], flags: Sequence[bool]) -> list[bool]:
    """Sets whether modules are in training, and says what they were."""
    before = [module.training for module in modules]
    if before != flags:
        for module, flag in zip(modules, flags, strict=True):
            module.training = flag
    return before
