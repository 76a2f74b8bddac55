"""Dropout that no mode switches off: calls of `torch.nn.functional` in a model that is in evaluation mode."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from threading import get_ident
from typing import Any

from torch import nn
from torch.nn import functional as F

from seismograd.places import chain

_MOST = 3
"""So many calls of each model are listened to."""


class Dropouts:
    """Listens to functional dropout while one call of a model runs. In between, everything is as torch has it.

    It hears of dropout that is on because nobody said otherwise: `F.dropout(x)` without `training`, an `nn.Dropout`
    that was made on the spot, `scaled_dot_product_attention` with a rate. `training=True` in so many words is meant.
    """

    def __init__(self) -> None:
        self._heard: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._undo: list[Callable[[], None]] = []
        self._inside: set[int] = set()
        self._found: list[dict[str, Any]] = []

    def wants(self, module: nn.Module) -> bool:
        return self._heard.get(module, 0) < _MOST

    def start(self, module: nn.Module) -> None:
        """The model is called, in evaluation mode."""
        self.stop()
        if not self.wants(module):
            return
        self._heard[module] = self._heard.get(module, 0) + 1
        inside = list(module.modules())
        if any(type(inner).__name__ == "OptimizedModule" or inner._compiled_call_impl is not None for inner in inside):
            return  # what is compiled depends on these functions being the same
        self._inside = {id(inner) for inner in inside}
        self._listen("dropout", self._dropout)
        self._listen("scaled_dot_product_attention", self._attention)

    def stop(self) -> list[dict[str, Any]]:
        """The call is over: what was heard."""
        while self._undo:
            self._undo.pop()()
        found, self._found, self._inside = self._found, [], set()
        return found

    def _listen(self, name: str, hear: Callable[..., None]) -> None:
        original: Any = getattr(F, name)
        thread = get_ident()

        @wraps(original)
        def listening(*args: Any, **kwargs: Any) -> Any:
            if get_ident() == thread:
                with suppress(Exception):  # arguments like no others: the user's call goes on
                    hear(*args, **kwargs)
            return original(*args, **kwargs)

        def undo() -> None:
            if getattr(F, name) is listening:
                setattr(F, name, original)

        setattr(F, name, listening)
        self._undo.append(undo)

    def _dropout(self, *args: Any, **kwargs: Any) -> None:
        rate = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        owner = _module_in(inspect.currentframe())
        if rate <= 0:
            return
        if owner is None:
            if len(args) < 3 and "training" not in kwargs:
                self._note("F.dropout", rate)
        elif owner.training and id(owner) not in self._inside:  # one that the model holds was switched on on purpose
            self._note("nn.Dropout", rate)

    def _attention(self, *args: Any, **kwargs: Any) -> None:
        rate = args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)
        if rate > 0:
            self._note("F.scaled_dot_product_attention", rate)

    def _note(self, what: str, rate: float) -> None:
        spots = chain(sys._getframe())
        if spots and len(self._found) < 8:
            place = {"file": spots[0].file, "line": spots[0].line, "code": spots[0].source}
            self._found.append({"what": what, "rate": float(rate), **place})


def _module_in(frame: Any) -> nn.Module | None:
    """The dropout module that calls, if one does: two frames above `_dropout`."""
    caller = frame.f_back.f_back if frame is not None else None
    owner = caller.f_locals.get("self") if caller is not None and caller.f_code.co_filename == _FILE else None
    return owner if isinstance(owner, nn.Module) else None


_FILE = inspect.getfile(nn.Dropout)
