"""Tensors in what the user's code passes around: batches, arguments, outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

_MOST = 64


def tensors_in(value: Any, depth: int = 3) -> Iterator[Tensor]:
    """The tensors in a nesting of lists and dicts. Dicts are read as dicts do it: one of the user's kind may load."""
    if isinstance(value, Tensor):
        yield value
        return
    if not depth:
        return
    if not isinstance(value, (dict, list, tuple)):
        held = getattr(value, "__dict__", None)
        value = held.get("data") if type(held) is dict else None  # a UserDict, as tokenizers return them
    parts: Any = ()
    if isinstance(value, dict):
        parts = list(dict.values(value))[:_MOST] if dict.__len__(value) <= 10_000 else ()
    elif isinstance(value, list):
        parts = list.__getitem__(value, slice(_MOST))
    elif isinstance(value, tuple):
        parts = tuple.__getitem__(value, slice(_MOST))
    for part in parts:
        yield from tensors_in(part, depth - 1)
