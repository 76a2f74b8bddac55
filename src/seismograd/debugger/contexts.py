"""What happens inside of a debugger's contexts. They nest, may be entered again while open, and put everything back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from seismograd.debugger.operations import Operation
from seismograd.debugger.tracking import MemoryTrack
from seismograd.logger import LogLevel
from seismograd.profiling import Profile

if TYPE_CHECKING:
    from seismograd.debugger.desk import PyTorchDebugger

T = TypeVar("T")


class Reentrant(ContextDecorator, Generic[T]):
    """One `with` object for any number of blocks, one in the other or one after the other; also a decorator."""

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._make = make
        self._open: list[AbstractContextManager[T]] = []

    def __enter__(self) -> T:
        context = self._make()
        value = context.__enter__()
        self._open.append(context)
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._open.pop().__exit__(kind, error, traceback)


@contextmanager
def detecting(debugger: PyTorchDebugger, on: bool) -> Iterator[PyTorchDebugger]:
    """Autograd's anomaly mode on, or off, and as it was afterwards. Quiet: torch's own context warns each time."""
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.autograd.set_detect_anomaly(on)
    try:
        yield debugger
    except RuntimeError as error:
        debugger.raised(error)
        raise
    finally:
        torch.autograd.set_detect_anomaly(*before)


@contextmanager
def profiled(
    debugger: PyTorchDebugger, on: bool, output_file: str | os.PathLike[str] | None, options: Mapping[str, Any]
) -> Iterator[PyTorchDebugger]:
    """What the profiler saw becomes an event, and stays in `profiles`."""
    if not on:
        yield debugger
        return
    profile = Profile(output_file, **options)
    debugger.profilers += 1
    try:
        with profile:
            yield debugger
    finally:
        debugger.profilers -= 1
        if profile.result is not None and profile.result.verdict:  # one within another has none of its own
            debugger.profiles.append(profile.result)
            debugger.log_debug_event("profile", " ".join(profile.result.verdict), {"trace": profile.result.trace})


@contextmanager
def memory_tracked(debugger: PyTorchDebugger, on: bool) -> Iterator[PyTorchDebugger]:
    """A snapshot before, one after, and one a second at most at the steps between; a leak becomes a finding."""
    if not on:
        yield debugger
        return
    debugger.snap("begin")
    taken, track = perf_counter(), MemoryTrack()

    def stepped(*_: Any) -> None:
        nonlocal taken
        try:
            debugger.leaks(track)
            if perf_counter() - taken >= 1.0:
                debugger.snap("step")
                taken = perf_counter()
        except Exception as error:  # the step is the user's, and goes on
            handle.remove()
            debugger.log_debug_event("blind_probe", f"memory is not followed on: {type(error).__name__}: {error}")

    handle = register_optimizer_step_post_hook(stepped)
    try:
        yield debugger
    finally:
        handle.remove()
        debugger.snap("end")


@contextmanager
def operated(debugger: PyTorchDebugger, name: str) -> Iterator[PyTorchDebugger]:
    """One operation with what the debugger's mode asks for; what it raises is tracked, and raised on."""
    switches = debugger.switches
    operation = Operation(name, debugger.mode, checks_gradients=switches.gradients)
    with ExitStack() as stack:
        if switches.anomalies:
            stack.enter_context(detecting(debugger, True))
        if switches.profile:
            stack.enter_context(profiled(debugger, True, None, {}))
        if switches.memory:
            stack.enter_context(memory_tracked(debugger, True))
        debugger.operations.append(operation)
        try:
            with operation:
                yield debugger
        except Exception as error:
            debugger.error_system.error_tracker.track_error(error, context={"operation": name})
            text = f"{name}: {type(error).__name__}: {error}"
            debugger.log_debug_event("operation_failed", text, level=LogLevel.ERROR)
            raise
        finally:
            debugger.operations.remove(operation)
            debugger.debug_metrics.append(operation.metrics)
