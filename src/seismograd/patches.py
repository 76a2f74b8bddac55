"""What Seismograd changes in torch while a watch is open, all of it, and how it is put back.

| what | why |
|---|---|
| `torch.autograd._engine_run_backward` | every `backward` and `autograd.grad` passes it: gradients are complete |
| global optimizer step hooks (public) | the moment before and after `optimizer.step()` |
| `torch.amp.GradScaler.scale`, `.step` | which backward is scaled, and a step that the scaler may skip |
| `DataLoader` iterators' `__next__` | how long the loop waits for data |

Nothing here runs while `torch.compile` traces.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Protocol

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter


class Listener(Protocol):
    """Hears what the training loop does. None of these may raise."""

    def backward_starts(self, roots: Sequence[Any]) -> None: ...
    def backward_ended(self, roots: Sequence[Any], seconds: float) -> None: ...
    def backward_failed(self) -> None: ...
    def gradients_taken(self, roots: Sequence[Any]) -> None: ...
    def step_starts(self, optimizer: Optimizer, has_closure: bool) -> None: ...
    def step_ended(self, optimizer: Optimizer) -> None: ...
    def loss_scaled(self, scaler: GradScaler, loss: Any, scaled: Any) -> None: ...
    def scaler_steps(self, scaler: GradScaler, optimizer: Optimizer) -> None: ...
    def data_waited(self, seconds: float) -> None: ...
    def idle(self) -> None: ...


_listeners: list[Listener] = []
_undo: list[Callable[[], None]] = []
_lock = threading.RLock()


def listen(listener: Listener) -> None:
    """Tells `listener` of everything from now on; the first one sets the patches."""
    with _lock:
        if not _listeners:
            _install()
        _listeners.append(listener)


def forget(listener: Listener) -> None:
    """Stops telling `listener`; the last one takes the patches away."""
    with _lock:
        if listener not in _listeners:
            return
        _listeners.remove(listener)
        if not _listeners:
            while _undo:
                _undo.pop()()


def _forget_all() -> None:
    """In a forked child (a loader's worker, say) nothing is watched."""
    for listener in _listeners:
        listener.idle()
    _listeners.clear()
    while _undo:
        _undo.pop()()


os.register_at_fork(after_in_child=_forget_all)


def inside_backward() -> bool:
    """Whether autograd is at work on this thread: what runs now was called by a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


def _install() -> None:
    _replace(torch.autograd, "_engine_run_backward", _watched_engine)
    _replace(GradScaler, "scale", _watched_scale)
    _replace(GradScaler, "step", _watched_scaler_step)
    _replace(_BaseDataLoaderIter, "__next__", _watched_next)
    for handle in (register_optimizer_step_pre_hook(_before_step), register_optimizer_step_post_hook(_after_step)):
        _undo.append(handle.remove)


def _replace(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    watching = wrapper(original)
    live = True

    @wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:
        return watching(*args, **kwargs) if live else original(*args, **kwargs)

    setattr(owner, name, ours)

    def undo() -> None:
        nonlocal live
        live = False  # someone who patched after us keeps theirs, which calls ours: that is idle from now on
        if getattr(owner, name) is ours:
            setattr(owner, name, original)

    _undo.append(undo)


def _watched_engine(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(roots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not _listeners or inside_backward():
            return original(roots, *args, **kwargs)
        if not kwargs.get("accumulate_grad", False):
            result = original(roots, *args, **kwargs)
            creates_graph = args[2] if len(args) > 2 else False
            if not creates_graph:
                for listener in tuple(_listeners):
                    listener.gradients_taken(roots)
            return result
        listeners = tuple(_listeners)
        for listener in listeners:
            listener.backward_starts(roots)
        began = perf_counter()
        try:
            result = original(roots, *args, **kwargs)
        except BaseException:
            for listener in listeners:
                listener.backward_failed()
            raise
        seconds = perf_counter() - began
        for listener in listeners:
            listener.backward_ended(roots, seconds)
        return result

    return run


def _watched_scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: GradScaler, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if not torch.compiler.is_compiling() and self.is_enabled():
            for listener in tuple(_listeners):
                listener.loss_scaled(self, outputs, scaled)
        return scaled

    return scale


def _watched_scaler_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and self.is_enabled():
            for listener in tuple(_listeners):
                listener.scaler_steps(self, optimizer)
        return original(self, optimizer, *args, **kwargs)

    return step


def _watched_next(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any) -> Any:
        if not _listeners:
            return original(self)
        began = perf_counter()
        try:
            return original(self)
        finally:
            seconds = perf_counter() - began
            for listener in tuple(_listeners):
                listener.data_waited(seconds)

    return step


def _before_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if torch.compiler.is_compiling():
        return
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    for listener in tuple(_listeners):
        listener.step_starts(optimizer, callable(closure))


def _after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if torch.compiler.is_compiling():
        return
    for listener in tuple(_listeners):
        listener.step_ended(optimizer)
