"""Ways to a debugger: built, for a block, around a training, around a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch import nn

from seismograd.debugger.desk import PyTorchDebugger
from seismograd.debugger.modes import DebugMode
from seismograd.records import DebugLevel, Finding, Reading
from seismograd.sinks import Console
from seismograd.training import watch

P = ParamSpec("P")
R = TypeVar("R")


def create_pytorch_debugger(
    logger: Any = None, debug_mode: DebugMode | str | bool = True, **more: Any
) -> PyTorchDebugger:
    """A debugger that checks gradients; `more` is what `PyTorchDebugger` takes."""
    return PyTorchDebugger(logger=logger, debug_mode=debug_mode, **more)


@contextmanager
def debug_training_session(
    model: nn.Module | None = None,
    logger: Any = None,
    debug_mode: DebugMode | str | bool = True,
    *,
    optimizer: Any = None,
    level: DebugLevel | str = DebugLevel.ADVANCED,
    **more: Any,
) -> Iterator[PyTorchDebugger]:
    """Debugs the training inside: what a watch of `model` finds becomes events of the debugger.

    Memory is tracked and gradients are watched unless `enable_memory_tracking` or `enable_gradient_checking` is False;
    autograd's anomaly mode and the profiler, which cost more, only if they are asked for.
    """
    debugger = PyTorchDebugger(level, logger=logger, debug_mode=debug_mode, **more)
    said, switches = debugger.said, debugger.switches
    with ExitStack() as stack:
        if switches.anomalies:
            stack.enter_context(debugger.anomaly_detection())
        if switches.profile:
            stack.enter_context(debugger.profiling())
        if said.memory is not False:
            stack.enter_context(debugger.memory_tracking())
        if model is not None and said.gradients is not False:
            stack.enter_context(watch(model, optimizer, level=level, sinks=[Console(), _Desk(debugger)]))
        yield debugger


@contextmanager
def debug_context(
    level: DebugLevel | str = DebugLevel.BASIC, *, model: nn.Module | None = None, **more: Any
) -> Iterator[PyTorchDebugger]:
    """A debugger with autograd's anomaly mode on inside; with a model it is also watched, as in a session."""
    more.setdefault("enable_anomaly_detection", True)
    with debug_training_session(model, level=level, debug_mode=more.pop("debug_mode", False), **more) as debugger:
        yield debugger


def debug_operation(
    function: Callable[P, R] | None = None,
    *,
    debug_mode: DebugMode | str | bool = DebugMode.FULL_DEBUG,
    debugger: PyTorchDebugger | None = None,
    name: str | None = None,
) -> Any:
    """Runs each call of a function, a coroutine's too, in a `debug_context`. Its debugger is `function.debugger`."""

    def decorate(wrapped: Callable[P, R]) -> Callable[P, R]:
        if not callable(wrapped):
            raise TypeError(f"debug_operation got {wrapped!r}: write @debug_operation(debug_mode=...) above a function")
        desk = debugger if debugger is not None else PyTorchDebugger(debug_mode=debug_mode)
        called = name or str(getattr(wrapped, "__name__", type(wrapped).__name__))

        if inspect.iscoroutinefunction(wrapped):

            @wraps(wrapped)
            async def waits(*args: P.args, **kwargs: P.kwargs) -> Any:
                with desk.debug_context(called):
                    return await wrapped(*args, **kwargs)

            ours: Any = waits
        else:

            @wraps(wrapped)
            def runs(*args: P.args, **kwargs: P.kwargs) -> R:
                with desk.debug_context(called):
                    return wrapped(*args, **kwargs)

            ours = runs
        ours.debugger = desk
        return ours  # type: ignore[no-any-return]

    return decorate if function is None else decorate(function)


class _Desk:
    """A sink that hands what a watch finds to a debugger."""

    def __init__(self, debugger: PyTorchDebugger) -> None:
        self._debugger = debugger

    def write_reading(self, reading: Reading) -> None: ...

    def write_finding(self, finding: Finding) -> None:
        self._debugger.take_from_watch(finding, new=True)

    def update_finding(self, finding: Finding) -> None:
        self._debugger.take_from_watch(finding, new=False)

    def close(self, report: dict[str, Any]) -> None: ...
