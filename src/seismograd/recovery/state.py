"""Good states of a training, to go back to: kept in the host's memory or in a folder, a few at a time."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from seismograd.replay.surroundings import Randomness, generators_of

Slot = tuple[Tensor, Callable[[Tensor], None]]


class Trained:
    """What a training consists of: whatever a step may change, and the next one depends on."""

    def __init__(
        self,
        models: Iterable[nn.Module],
        optimizers: Sequence[Optimizer],
        schedulers: Sequence[Any] = (),
        scalers: Sequence[Any] = (),
    ) -> None:
        self.modules = list({id(one): one for model in models for one in model.modules()}.values())
        self.optimizers, self.schedulers, self.scalers = list(optimizers), list(schedulers), list(scalers)

    def tensors(self) -> list[Tensor]:
        """Parameters and buffers, each once, and what optimizers hold that is no module's."""
        held = [one for module in self.modules for one in (*module._parameters.values(), *module._buffers.values())]
        held += [p for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]]
        there = [one for one in held if isinstance(one, Tensor) and not is_lazy(one)]
        return list({id(one): one for one in there if not one.is_meta and not one.is_inference()}.values())


class State:
    """How a training was before one of its updates."""

    def __init__(
        self,
        trained: Trained,
        step: int,
        loss: float | None,
        folder: Path | None = None,
        *,
        lowered: Mapping[int, float] | None = None,
    ) -> None:
        self.step, self.loss = step, loss
        self.lowered = dict(lowered or {})
        """By how much learning rates had been lowered by then."""
        self._randomness = Randomness.now(own=generators_of(trained.modules))
        with torch.no_grad():
            self._tensors = [(one, _kept(one)) for one in trained.tensors()]
            self._optimizers = [
                (one, _mapped(dict(one.state), _kept), [_settings(group) for group in one.param_groups])
                for one in trained.optimizers
            ]
        self._others = [(one, copy.deepcopy(one.state_dict())) for one in (*trained.schedulers, *trained.scalers)]
        self._file: Path | None = None
        if folder is not None:
            self._put_away(folder)

    def restore(self, *, randomness: bool = True) -> None:
        """Everything is as it was then. It may be restored again later."""
        away = self._fetched()
        with torch.no_grad():
            for tensor, copied in self._tensors:
                _write(tensor, next(away) if copied is _AWAY else copied)
            for optimizer, state, settings in self._optimizers:
                _restore_state(optimizer, _mapped(state, lambda one: next(away) if one is _AWAY else one))
                for group, was in zip(optimizer.param_groups, settings, strict=False):
                    _restore_settings(group, was)
        for one, was in self._others:
            one.load_state_dict(copy.deepcopy(was))
        if randomness:
            self._randomness.restore()

    def forget(self) -> None:
        """Takes it from the disk, if it is there."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()

    # -- on disk -----------------------------------------------------------------------------------------------------

    def _put_away(self, folder: Path) -> None:
        from safetensors.torch import save_file

        flat = self._flat()
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"good-{os.getpid()}-{self.step:08}.safetensors"
        draft = file.with_suffix(".draft")
        save_file({f"{at:06}": one.contiguous() for at, one in enumerate(flat)}, draft)
        os.replace(draft, file)
        self._file = file
        self._tensors = [(one, _put_down(copied)) for one, copied in self._tensors]
        self._optimizers = [(one, _mapped(state, _put_down), rest) for one, state, rest in self._optimizers]

    def _flat(self) -> list[Tensor]:
        flat = [copied for _, copied in self._tensors]
        for _, state, _ in self._optimizers:
            flat += list(_leaves(state))
        return [one for one in flat if _fits_a_file(one)]

    def _fetched(self) -> Iterator[Tensor]:
        """What is on disk, all of it read at once: if that fails, nothing has been changed yet."""
        if self._file is None:
            return iter(())
        from safetensors.torch import load_file

        return iter([one for _, one in sorted(load_file(self._file).items())])


class Shelf:
    """The last few states. One is good if it went well for some steps after it."""

    def __init__(self, *, every: int, keep: int, settle: int, folder: Path | None) -> None:
        self.every, self.keep, self.settle, self.folder = every, keep, settle, folder
        self.states: list[State] = []
        self._next = 0

    def is_due(self, step: int) -> bool:
        return not self.states or step >= self._next

    def put(self, state: State) -> None:
        self._next = state.step + self.every
        self.states.append(state)
        if len(self.states) > self.keep:
            self.states.pop(0).forget()

    def good(self, onset: int, among: Container[int]) -> State | None:
        """The newest state that was followed by `settle` good steps, before it went wrong at step `onset`; `among`
        those of some steps."""
        there = [state for state in self.states if state.step in among]
        for state in reversed(there):
            if state.step <= onset - self.settle:
                return state
        return there[0] if there else None

    def drop_after(self, state: State) -> None:
        """What came after it has turned out bad."""
        at = self.states.index(state)
        for later in self.states[at + 1 :]:
            later.forget()
        del self.states[at + 1 :]

    def drop(self, state: State) -> None:
        """It led to the same end again; the oldest stays, there is no other."""
        if len(self.states) > 1:
            self.states.remove(state)
            state.forget()

    def waits(self, step: int) -> None:
        """It went wrong: none is kept until some steps have gone well."""
        self._next = max(self._next, step + self.settle + 1)

    def close(self) -> None:
        while self.states:
            self.states.pop().forget()


class _Away(Tensor):
    """Of a kind of its own: scripts count the plain tensors that are left."""


_AWAY = _Away()
"""Stands for a tensor that is on disk."""


def _fits_a_file(tensor: Tensor) -> bool:
    """Whether safetensors can hold it; the few others stay in memory."""
    return tensor.layout is torch.strided and not tensor.is_complex() and not hasattr(tensor, "_local_tensor")


def _put_down(tensor: Tensor) -> Tensor:
    return _AWAY if _fits_a_file(tensor) else tensor


def _write(tensor: Tensor, copied: Tensor) -> None:
    """Copies, into an expanded tensor once for each element that there is."""
    if tensor.layout is torch.strided:
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            if size > 1 and stride == 0:
                tensor, copied = tensor.narrow(dim, 0, 1), copied.narrow(dim, 0, 1)
    tensor.copy_(copied)


def _kept(tensor: Tensor) -> Tensor:
    """A copy in the host's memory; a sharded tensor stays where it is."""
    if hasattr(tensor, "_local_tensor") or tensor.device.type == "cpu":
        return tensor.detach().clone()
    return tensor.detach().to("cpu", copy=True)


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        changed = [_mapped(item, change) for item in value]
        return changed if isinstance(value, list) else tuple(changed)
    return value


def _leaves(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: _mapped(value, _kept) for name, value in group.items() if name != "params"}


def _restore_settings(group: dict[str, Any], was: dict[str, Any]) -> None:
    for name, value in was.items():
        if isinstance(value, Tensor) and isinstance(group.get(name), Tensor):
            group[name].copy_(value)  # a compiled step knows this very tensor
        else:
            group[name] = value


def _restore_state(optimizer: Optimizer, was: dict[Any, Any]) -> None:
    """In place where that is possible: fused and captured steps hold on to these very tensors."""
    state = optimizer.state
    for gone in [key for key in state if key not in was]:
        del state[gone]
    for key, items in was.items():
        now = state.get(key, {})
        if not isinstance(items, dict) or not isinstance(now, dict):
            state[key] = _mapped(items, torch.clone)
            continue
        for name in [name for name in now if name not in items]:
            del now[name]
        for name, value in items.items():
            held = now.get(name)
            if isinstance(value, Tensor) and isinstance(held, Tensor) and held.shape == value.shape:
                held.copy_(value)
            else:
                away = isinstance(key, Tensor) and isinstance(value, Tensor) and value.ndim > 0
                now[name] = value.to(key.device, copy=True) if away else _mapped(value, torch.clone)
        state[key] = now
