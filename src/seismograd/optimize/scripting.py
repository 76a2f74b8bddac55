"""TorchScript, where it is asked for: scripted, else traced, and only if it can be saved, loaded, and agrees."""

from __future__ import annotations

import inspect
import io
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from seismograd.onlookers.nested import tensors_in
from seismograd.optimize.compiling import in_short, torch_may_warn_itself
from seismograd.optimize.metrics import Account
from seismograd.places import is_users
from seismograd.replay.rewind import Rewind

trace: Any = torch.jit.trace
load: Any = torch.jit.load


class Scripted:
    """A model as TorchScript, over the same weights. It is made at the first call, and anew when the model has moved.

    A model that is traced has its flags in its graph, so there is a trace for each set of flags.
    """

    def __init__(self, model: nn.Module, account: Account) -> None:
        self._model, self._account = model, account
        self._scripts: dict[Any, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = tuple(module.training for module in self._model.modules()), tuple(map(id, self._model.buffers()))
        script = self._scripts.get(key)
        if script is None:
            self._scripts = {flags: kept for flags, kept in self._scripts.items() if flags[1] == key[1]}
            script = self._scripts[key] = self._made(args, kwargs)
        return script(*args, **kwargs)

    def _made(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        failures = []
        for how, make in (("scripted", self._script), ("traced", self._trace)):
            try:
                with torch_may_warn_itself(), Rewind([self._model]):
                    script = make(args, kwargs)
                self._check(script, args, kwargs)
            except Exception as error:
                failures.append(f"{how}: {in_short(error)}")
                continue
            self._account.learn(compiled=True)
            self._account.note(f"the model is {how} by TorchScript, which torch has deprecated")
            if failures:
                self._account.note(f"it could not be {failures[0]}")
            return script
        self._account.learn(compiled=False)
        raise RuntimeError(
            f"{type(self._model).__name__} cannot be TorchScript ({'; '.join(failures)}): leave scripted=True out,"
            " and torch.compile is used"
        )

    def _script(self, _args: Any, _kwargs: Any) -> Any:
        return torch.jit.script(self._model)

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = dict(inspect.signature(self._model.forward).bind(*args, **kwargs).arguments) if kwargs else None
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            script = trace(self._model, None if kwargs else args, example_kwarg_inputs=named, check_trace=False)
        for each in said:
            if issubclass(each.category, TracerWarning) and is_users(each.filename):
                raise ValueError(f"a trace would hold for this batch only ({each.filename}:{each.lineno})")
        return script

    def _check(self, script: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An error where it cannot be saved and loaded, or what was loaded gives another output than the model."""
        file = io.BytesIO()
        with torch_may_warn_itself():
            torch.jit.save(script, file)
            file.seek(0)
            loaded = load(file)
        outputs = []
        for run in (self._model, script, loaded):
            with Rewind([self._model]), torch.no_grad():
                outputs.append(list(tensors_in(run(*args, **kwargs))))
        for name, given in (("it", outputs[1]), ("what was saved and loaded again", outputs[2])):
            if len(given) != len(outputs[0]) or not all(map(_alike, outputs[0], given)):
                raise ValueError(f"{name} gives another output than the model")


def _alike(one: Tensor, other: Tensor) -> bool:
    close = 1e-2 if one.dtype in (torch.bfloat16, torch.float16) else 1e-4
    return one.shape == other.shape and torch.allclose(
        one.double(), other.double(), rtol=close, atol=close / 10, equal_nan=True
    )
