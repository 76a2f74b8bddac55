"""Puts everything of torch's back as it was before a second run."""

from __future__ import annotations

import logging
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from seismograd.places import is_users
from seismograd.replay.surroundings import Autocast, Randomness, generators_of

_MOST_BYTES = 2**30
"""Buffers up to this size, all together, are copied before a second run; what is written otherwise is seen by op."""


class _Aside:
    """A stream that swallows what this thread writes: other threads write on."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, get_ident()

    def write(self, text: str) -> int:
        return len(text) if get_ident() == self._thread else int(self._stream.write(text))

    def flush(self) -> None:
        if get_ident() != self._thread:
            self._stream.flush()

    def fileno(self) -> int:
        if get_ident() == self._thread:
            raise OSError("what runs a second time has no terminal")
        return int(self._stream.fileno())

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def silenced() -> Iterator[None]:
    """Nothing that Python code prints, warns or logs on this thread comes out."""
    out, err, show, handle = sys.stdout, sys.stderr, warnings.showwarning, logging.Logger.callHandlers
    thread = get_ident()

    def shown(*args: Any, **kwargs: Any) -> None:
        if get_ident() != thread:
            show(*args, **kwargs)

    def handled(self: logging.Logger, record: logging.LogRecord) -> None:
        if get_ident() != thread:
            handle(self, record)

    sys.stdout = _Aside(out) if out is not None else None
    sys.stderr = _Aside(err) if err is not None else None
    warnings.showwarning = shown  # not catch_warnings: after it, warnings shown before come again
    logging.Logger.callHandlers = handled  # type: ignore[method-assign]
    try:
        yield
    finally:
        sys.stdout, sys.stderr, warnings.showwarning = out, err, show
        logging.Logger.callHandlers = handle  # type: ignore[method-assign]


class Rewind:
    """A context in which modules may run: afterwards their attributes, parameters, gradients, buffers and flags are as
    they were, and so are the states of all generators. `kept` are bytes that ops wrote over, to be copied back.

    With `alone` it is these modules without those inside of them.
    """

    def __init__(self, modules: Iterable[nn.Module], tensors: Iterable[Tensor] = (), *, alone: bool = False) -> None:
        inside = modules if alone else (each for module in modules for each in module.modules())
        self._modules = list({id(each): each for each in inside}.values())
        self._others = list(tensors)
        self.kept: dict[int, tuple[Tensor, Tensor, Tensor, int]] = {}

    def __enter__(self) -> Rewind:
        self._randomness = Randomness.now(own=generators_of(self._modules))
        self._attributes = [(each, dict(each.__dict__)) for each in self._modules]
        held = [one for each in self._modules for one in each.__dict__.values()]
        held += [inner for one in held if type(one) is dict for inner in one.values()]
        held += [vars(one) for one in held if _is_plain_object(one)]
        self._inner = [(one, one.copy()) for one in held if isinstance(one, dict | list | set | deque)]
        parameters = {id(p): p for each in self._modules for p in each._parameters.values() if p is not None}
        buffers = {id(b): b for each in self._modules for b in each._buffers.values() if b is not None}
        self._parameters = [(p, p.requires_grad, p.grad) for p in parameters.values()]
        size = sum(b.numel() * b.element_size() for b in buffers.values())
        with torch.no_grad():
            plain = [b for b in buffers.values() if not b.is_inference()]
            self._buffers = [(b, b.clone()) for b in plain] if size <= _MOST_BYTES else []
            self._storages = [(one, one.detach()) for one in (*parameters.values(), *plain)]
        gradients = [gradient for _, _, gradient in self._parameters if gradient is not None]
        versioned = [*parameters.values(), *buffers.values(), *gradients, *self._others]
        self._versions = [(one, one._version) for one in versioned if not one.is_inference()]
        return self

    def __exit__(self, *_exception: object) -> None:
        for each, attributes in self._attributes:
            now = each.__dict__
            if len(now) != len(attributes) or any(now.get(name) is not was for name, was in attributes.items()):
                now.clear()
                now.update(attributes)
        for one, was in self._inner:
            _put_back(one, was)
        with torch.no_grad():
            for tensor, before in self._storages:
                if (
                    tensor.layout == torch.strided
                    and tensor.untyped_storage()._cdata != before.untyped_storage()._cdata
                ):
                    tensor.data = before  # `weight.data = ...` in forward
            for whole, copy, *_rest in self.kept.values():
                whole.copy_(copy)
            for buffer, copy in self._buffers:
                buffer.copy_(copy)
            for parameter, requires_grad, gradient in self._parameters:
                if parameter.requires_grad != requires_grad:
                    parameter.requires_grad_(requires_grad)
                if parameter.grad is not gradient:
                    parameter.grad = gradient
        versions = [(one, version) for _, _, one, version in self.kept.values() if version >= 0] + self._versions
        moved = [(one, version) for one, version in versions if one._version != version]
        if moved:
            torch._C._autograd._unsafe_set_version_counter(
                tuple(one for one, _ in moved), tuple(version for _, version in moved)
            )
        self._randomness.restore()


def _is_plain_object(held: Any) -> bool:
    """Whether it is an object of the user's, with attributes of its own."""
    home = sys.modules.get(type(held).__module__)
    name = getattr(home, "__file__", None)
    return not isinstance(held, nn.Module) and hasattr(held, "__dict__") and name is not None and is_users(name)


def _put_back(held: Any, was: Any) -> None:
    """A container that a module holds gets the same things in it again."""
    if len(held) == len(was) and all(one is other for one, other in zip(_items(held), _items(was), strict=True)):
        return
    held.clear()
    if isinstance(held, dict | set):
        held.update(was)
    else:
        held.extend(was)


def _items(held: Any) -> Iterable[Any]:
    return (part for item in held.items() for part in item) if isinstance(held, dict) else held


@contextmanager
def as_it_was(autocast: Autocast) -> Iterator[None]:
    """Gradients on, autocast as noted, and whatever is compiled run eagerly."""
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        for kind, enabled, dtype in autocast.kinds:
            stack.enter_context(
                torch.autocast(kind, enabled=enabled, dtype=dtype, cache_enabled=autocast.cache)
                if enabled
                else torch.autocast(kind, enabled=False)
            )
        if "torch._dynamo" in sys.modules:
            stack.enter_context(_eager())
        yield


@contextmanager
def _eager() -> Iterator[None]:
    stance: Any = torch.compiler.set_stance("force_eager")
    with stance:
        yield


@contextmanager
def swapped(shadow: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """While it lasts, tensors have the values of their copies. Nobody who saved them for backward notices."""
    with torch.no_grad():
        present = [(tensor, tensor.detach().clone()) for tensor, _ in shadow]
        versions = [tensor._version for tensor, _ in shadow]
        try:
            for tensor, copy in shadow:
                tensor.copy_(copy)
            yield
        finally:
            for tensor, copy in present:
                tensor.copy_(copy)
            torch._C._autograd._unsafe_set_version_counter(tuple(tensor for tensor, _ in shadow), tuple(versions))
