"""`torch.compile`, with its graph breaks counted and explained. A failure to compile is a result."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import nn

from seismograd.optimize.metrics import Account, GraphBreak
from seismograd.places import is_users
from seismograd.replay.rewind import Rewind

_MOST = 100
"""So many graph breaks are kept."""


@contextmanager
def torch_may_warn_itself() -> Iterator[None]:
    """What torch says of its own use of torch, when it compiles, is not shown, and raises nothing."""
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", message=r"`?torch\.jit", category=kind)
        warnings.filterwarnings("ignore", message=r"The \.grad attribute of a Tensor that is not a leaf")
        yield


@contextmanager
def breaks_noted(into: list[GraphBreak]) -> Iterator[None]:
    """Each graph break that compiling inside this block meets is put into the list."""
    from torch._dynamo.utils import graph_break_reasons as reasons

    before = len(reasons)
    try:
        yield
    finally:
        for reason in reasons[before if len(reasons) >= before else 0 :]:
            if len(into) < _MOST:
                into.append(_explained(reason))


def graph_breaks(model: nn.Module, *args: Any, **kwargs: Any) -> list[GraphBreak]:
    """Where and why a graph of this call of the model would break. The call runs, and the model is put back.

    Compiled code of the process is forgotten for it, and compiled anew when it is next needed.
    """
    found: list[GraphBreak] = []
    torch.compiler.reset()
    with Rewind([model]), torch.no_grad(), torch_may_warn_itself(), breaks_noted(found):
        compiled: Any = torch.compile(model, backend="eager")
        compiled(*args, **kwargs)
    return found


class Compiled:
    """A model that runs compiled, until compiling fails: then as it is."""

    def __init__(self, model: nn.Module, account: Account, options: Mapping[str, Any]) -> None:
        self._model, self._account, self._options = model, account, dict(options)
        self._run: Any = None
        self._breaks: list[GraphBreak] = []
        self._ran = False
        self._learn(compiled=True)
        try:
            with torch_may_warn_itself():
                self._run = torch.compile(model, **self._options)
        except TypeError as error:  # an option that it does not know
            raise TypeError(f"compile_options {dict(options)!r}: {error}") from error
        except Exception as error:  # a Python or a system without it
            self._failed(error)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._run is None:
            return self._model(*args, **kwargs)
        if self._ran:
            return self._once_more(args, kwargs)
        return self._first(args, kwargs)

    def _first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rewind, began, frames = Rewind([self._model]), perf_counter(), _frames()
        rewind.__enter__()
        try:
            with torch_may_warn_itself(), breaks_noted(self._breaks):
                output = self._run(*args, **kwargs)
        except Exception as error:
            if not failed_to_compile(error):
                raise
            rewind.__exit__()
            return self._uncompiled(error, args, kwargs)
        self._ran = True
        if _frames() == frames:
            self._account.note("code that was compiled for an earlier model is used: graph_breaks() counts its breaks")
            return output
        self._learn(compile_time=perf_counter() - began, graph_breaks=len(self._breaks), breaks=tuple(self._breaks))
        for each in self._breaks:
            self._account.note(f"graph break: {each}")
        return output

    def _once_more(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        strict = any(each[0] == "error" for each in warnings.filters)
        try:
            with torch_may_warn_itself() if strict else nullcontext():
                return self._run(*args, **kwargs)
        except Exception as error:  # compiled anew, for other shapes
            if not failed_to_compile(error):
                raise
            return self._uncompiled(error, args, kwargs)

    def _uncompiled(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = self._model(*args, **kwargs)  # where it fails too, the call is wrong, and not the compiler
        self._failed(error)
        return output

    def _failed(self, error: Exception) -> None:
        self._run = None
        self._learn(compiled=False)
        self._account.note(f"torch.compile failed, and the model runs uncompiled: {in_short(error)}")

    def _learn(self, **known: Any) -> None:
        self._account.learn(**known)


def _frames() -> int:
    """How many functions were compiled in this process."""
    from torch._dynamo.utils import counters

    return int(counters["frames"]["total"])


def failed_to_compile(error: BaseException | None) -> bool:
    """Whether the compiler raised it, and not the model."""
    from torch._dynamo import exc

    seen = 0
    while error is not None and seen < 10:
        kind = type(error)
        if isinstance(error, exc.TorchDynamoException) and not isinstance(error, exc.ObservedException):
            return True
        if kind.__module__.startswith(("torch._inductor", "torch._functorch", "triton")):
            return True
        error, seen = error.__cause__, seen + 1
    return False


def in_short(error: BaseException) -> str:
    """The type of an error and the first line of what it says; the second too, where that is what was raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    return f"{type(error).__name__}: {said}".rstrip(": ")


def _explained(reason: Any) -> GraphBreak:
    said = [line.strip() for line in str(reason.reason).splitlines() if line.strip()]
    text = said[0] if said else "unknown"
    why = [line.removeprefix("Explanation: ") for line in said if line.startswith("Explanation:")]
    hints = [line.removeprefix("Hint: ") for line in said if line.startswith("Hint:")]
    if text.startswith("generic_jump"):
        why = ["which way the code goes depends on the values of a tensor"]
        hints = ["torch.where or torch.cond, or a condition on something else than a tensor"]
    frames: Sequence[Any] = list(reason.user_stack or ())
    own = [frame for frame in frames if is_users(frame.filename)] or frames
    found = GraphBreak(f"{text}: {why[0]}" if why else text, hint=hints[0] if hints else None)
    if not own:
        return found
    last = own[-1]
    code = last.line or linecache.getline(last.filename, last.lineno or 0)
    return replace(found, file=last.filename, line=last.lineno, code=(code or "").strip() or None)
