"""A function that gets its models optimised."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn

from seismograd.optimize.models import Optimized, optimized
from seismograd.optimize.modes import OptimizationMode

P = ParamSpec("P")
R = TypeVar("R")

_KEPT = "_seismograd_optimized"
"""The attribute of a model that keeps what it became: both go together."""


def optimize_model(
    function: Callable[P, R] | None = None,
    *,
    optimization_mode: OptimizationMode | str = OptimizationMode.AMP,
    dtype: torch.dtype | None = None,
    compile_options: Mapping[str, Any] | None = None,
    scripted: bool = False,
) -> Any:
    """Each `nn.Module` that a function, a method or a coroutine is given reaches it in this mode of optimisation.

    A model is optimised once, however often it is passed. The `self` of a method is left as it is.
    """
    mode = OptimizationMode.of(optimization_mode)
    options = None if compile_options is None else dict(compile_options)
    key = (mode, dtype, repr(options), scripted)

    def fast(given: Any) -> Any:
        if not isinstance(given, nn.Module) or isinstance(given, Optimized) or mode is OptimizationMode.NONE:
            return given
        kept = given.__dict__.get(_KEPT)
        if not isinstance(kept, _Kept):  # one that was loaded has a plain dict there
            kept = given.__dict__[_KEPT] = _Kept()
        if key not in kept:
            kept[key] = optimized(given, mode, dtype=dtype, compile_options=options, scripted=scripted)
        return kept[key]

    def decorate(wrapped: Callable[P, R]) -> Callable[P, R]:
        if isinstance(wrapped, (type, nn.Module)):
            what = "class" if isinstance(wrapped, type) else "model"
            name = wrapped.__name__ if isinstance(wrapped, type) else type(wrapped).__name__
            raise TypeError(
                f"optimize_model got the {what} {name}: it goes above a function that is given models. For a model of"
                " your own it is PyTorchDebugger().optimize_model(model, mode)"
            )
        if not callable(wrapped):
            raise TypeError(
                f"optimize_model got {wrapped!r}: write @optimize_model(optimization_mode=...) above a function"
            )
        own = 1 if _is_method(wrapped) else 0

        def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            replaced = (*args[:own], *(fast(each) for each in args[own:]))
            return wrapped(*replaced, **{name: fast(each) for name, each in kwargs.items()})

        ours: Any
        if inspect.iscoroutinefunction(wrapped):

            @wraps(wrapped)
            async def ours(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await given(args, kwargs)

        else:

            @wraps(wrapped)
            def ours(*args: P.args, **kwargs: P.kwargs) -> Any:
                return given(args, kwargs)

        return ours  # type: ignore[no-any-return]

    return decorate if function is None else decorate(function)


class _Kept(dict[Any, nn.Module]):
    """What a model became, by mode. A copy of the model, and its file, have nothing in it."""

    def __reduce__(self) -> Any:
        return dict, ()

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return dict, ()

    def __deepcopy__(self, _memo: Any) -> _Kept:
        return _Kept()


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether its first argument is the object that it belongs to."""
    try:
        first = next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return False
    return first in ("self", "cls") and not inspect.ismethod(function)
