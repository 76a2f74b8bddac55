"""Marks the calls of modules in a profile by the names that they have in their model."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import torch
from torch import nn

_MOST = 20_000
"""So many modules are given a name."""


class Marks:
    """While it is open, each call of a module is an event of the profile.

    The outermost module is named after its class, what is in it by its place in it: `encoder.layers.3`. Where there are
    several models, those after the first have their class in front: `Critic.layers.3`. Nothing is marked while
    `torch.compile` or TorchScript traces.
    """

    def __init__(self, on_call: Callable[[], None]) -> None:
        self.known: dict[str, tuple[str, str, str]] = {}
        """By the text of the mark: the module's name, its class, and the name of the outermost one that it is in."""
        self._first: str | None = None
        self._on_call = on_call  # told before each outermost call
        self._texts: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._inside = threading.local()
        self._undo: Callable[[], None] | None = None

    def open(self) -> None:
        original: Any = nn.Module.__call__
        inside, is_compiling, is_tracing = self._inside, torch.compiler.is_compiling, torch._C._get_tracing_state
        text_of, on_call = self._text, self._on_call
        live = True

        @wraps(original)
        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807, torch's profiler asks for `self`
            if not live or is_compiling() or is_tracing() is not None:
                return original(self, *args, **kwargs)
            depth = getattr(inside, "depth", 0)
            if not depth:
                on_call()
            inside.depth = depth + 1
            try:
                with _mark(text_of(self, depth)):
                    return original(self, *args, **kwargs)
            finally:
                inside.depth = depth

        ours: Any = __call__
        with suppress(AttributeError, TypeError):  # `torch.compile` begins at the user's frames, and never at ours
            dynamo: Any = torch._C._dynamo.eval_frame
            only_ours = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT)
            dynamo.set_code_exec_strategy(ours.__code__, only_ours)
        owner: Any = nn.Module
        owner.__call__ = ours

        def undo() -> None:
            nonlocal live
            live = False  # someone who patched after us keeps theirs, which calls ours
            if owner.__call__ is ours:
                owner.__call__ = original

        self._undo = undo

    def close(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _text(self, module: nn.Module, depth: int) -> str:
        kind = type(module).__name__
        try:
            if module not in self._texts:
                if not depth:
                    self._name_all(module)
                if module not in self._texts:  # called by another, and not a part of it
                    self._named(module, kind, kind)
            return self._texts[module]
        except TypeError:  # a class of the user's that cannot be hashed
            self.known.setdefault(kind, (kind, kind, kind))
            return kind

    def _name_all(self, outermost: nn.Module) -> None:
        kind, number = type(outermost).__name__, 1
        root = kind
        while any(root == other for _, _, other in self.known.values()):
            number += 1
            root = f"{kind} {number}"
        if self._first is None and any(True for _ in outermost.children()):
            self._first = root
        front = "" if root == self._first else f"{root}."
        for name, module in outermost.named_modules():
            if len(self._texts) >= _MOST:
                break
            if module not in self._texts:
                self._named(module, f"{front}{name}" if name else root, root)

    def _named(self, module: nn.Module, name: str, root: str) -> str:
        kind = type(module).__name__
        text = name if name == root else f"{name} ({kind})"
        text = text.replace("\\", "/").replace('"', "'")  # the trace does not escape them
        self.known.setdefault(text, (name, kind, root))
        self._texts[module] = text
        return text


_mark: Callable[[str], Any] = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)
