"""A model in a mode of optimisation: another way to call the same weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import wraps
from time import perf_counter
from typing import Any, Self

import torch
from torch import nn

from seismograd.optimize.autocasting import device_of, narrow_dtype, scaler_for
from seismograd.optimize.blocks import blocks_of
from seismograd.optimize.checkpoints import Checkpoints
from seismograd.optimize.compiling import Compiled
from seismograd.optimize.metrics import Account, OptimizationMetrics
from seismograd.optimize.modes import OptimizationMode
from seismograd.optimize.scripting import Scripted

__all__ = ["Optimized", "optimized", "scaler_for"]

_SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
_OWN = frozenset(("original", "account", "settings"))


def optimized(
    model: nn.Module,
    mode: OptimizationMode | str,
    *,
    dtype: torch.dtype | None = None,
    compile_options: Mapping[str, Any] | None = None,
    scripted: bool = False,
) -> nn.Module:
    """The model in this mode: it has the same parameters, buffers and state dict, and the model itself stays as it is.

    - `dtype`: what autocast computes in; bfloat16, or float16 on a GPU without it, if left out.
    - `compile_options`: what `torch.compile` takes.
    - `scripted`: TorchScript in place of `torch.compile`; an error where the model cannot be scripted and saved.

    What is known of it so far is `.optimization`, an `OptimizationMetrics`. In mode `none` it is the model itself.
    """
    mode = OptimizationMode.of(mode)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, not an nn.Module")
    if isinstance(model, Optimized):
        model = model.original
    if mode is OptimizationMode.NONE:
        return model
    if scripted and not mode.compiles:
        raise ValueError(f"scripted=True is a way to compile, and mode {mode} does not: use compilation")
    if scripted and compile_options:
        raise ValueError(f"compile_options {dict(compile_options)!r} are for torch.compile: leave scripted=True out")
    return Optimized(model, mode, dtype, compile_options, scripted)


class Optimized(nn.Module):
    """A model in a mode of optimisation. Registries of parameters, buffers and modules are the model's own."""

    original: nn.Module
    account: Account

    def __init__(
        self,
        model: nn.Module,
        mode: OptimizationMode,
        dtype: torch.dtype | None = None,
        compile_options: Mapping[str, Any] | None = None,
        scripted: bool = False,
    ) -> None:
        super().__init__()
        began = perf_counter()
        account = Account(mode)
        if mode.narrows:
            narrow = narrow_dtype(device_of(model), dtype)
            account.learn(amp_enabled=True, amp_dtype=str(narrow).removeprefix("torch."))
        self.__dict__.update({name: model.__dict__[name] for name in _SHARED})
        self.__dict__.update(
            original=model,
            account=account,
            settings=(mode, dtype, None if compile_options is None else dict(compile_options), scripted),
            _checkpoints=_checkpoints(model, account, scripted) if mode.checkpoints else None,
            _run=_runner(model, account, compile_options, scripted) if mode.compiles else model,
        )
        self.__dict__["forward"] = _like(model.forward, self._forward)
        account.learn(execution_time=perf_counter() - began)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        mode, dtype, *_ = self.settings
        with ExitStack() as stack:
            device = device_of(self.original)
            if mode.narrows and self._has_autocast(device):
                stack.enter_context(torch.autocast(device.type, dtype=narrow_dtype(device, dtype)))
            if self._checkpoints is not None:
                stack.enter_context(self._checkpoints)
            return self._run(*args, **kwargs)

    def _has_autocast(self, device: torch.device) -> bool:
        if torch.amp.is_autocast_available(device.type):
            return True
        self.account.learn(amp_enabled=False, amp_dtype=None)
        self.account.note(f"there is no autocast on {device.type}: the model computes as it does")
        return False

    @property
    def optimization(self) -> OptimizationMetrics:
        """What was done, and what is known of it by now."""
        return self.account.metrics

    # -- as the model itself does it -------------------------------------------------------------------------------

    @property
    def training(self) -> bool:
        return bool(self.__dict__["original"].training) if "original" in self.__dict__ else True

    @training.setter
    def training(self, mode: bool) -> None:
        if "original" in self.__dict__:
            self.__dict__["original"].training = mode

    def train(self, mode: bool = True) -> Self:
        self.original.train(mode)
        return self

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self.original._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.load_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        original = self.__dict__.get("original")
        if original is None:
            return super().__getattr__(name)
        return getattr(original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "original" in self.__dict__ and name not in self.__dict__:
            setattr(self.original, name, value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        return _again, (self.original, *self.settings)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return self.__reduce__()

    def extra_repr(self) -> str:
        return f"{type(self.original).__name__}, mode={self.settings[0]}"


def _runner(
    model: nn.Module, account: Account, compile_options: Mapping[str, Any] | None, scripted: bool
) -> Callable[..., Any]:
    return Scripted(model, account) if scripted else Compiled(model, account, compile_options or {})


def _checkpoints(model: nn.Module, account: Account, scripted: bool) -> Checkpoints | None:
    if scripted:
        account.note("nothing is checkpointed: TorchScript cannot compute a block again")
        return None
    blocks = blocks_of(model)
    account.learn(checkpointed=tuple(name for block in blocks for name in block.names))
    if not blocks:
        account.note("nothing is checkpointed: no blocks of this model repeat, and it has no long nn.Sequential")
        return None
    return Checkpoints(blocks)


def _like(forward: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A forward method with the signature of the model's."""

    @wraps(forward)
    def runs(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    return runs


def _again(model: nn.Module, *settings: Any) -> nn.Module:
    return Optimized(model, *settings)
