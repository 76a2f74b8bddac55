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

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not owner.training or not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        if torch.compiler.is_compiling():  # a compiler keeps what a second run may not change, by itself
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)
        return checkpoint(
            forward, *args, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: _twice(parts), **kwargs
        )

    return checkpointed


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
