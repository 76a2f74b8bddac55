"""What the items of a container weigh: their bytes, what they are, and what the graphs that they keep hold."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Any

from torch import Tensor, nn

SAMPLE = 12
"""So many of the newest items are looked at."""

_MOST_NODES = 256
"""So much of one graph is looked at: a node that Python has seen is freed by recursion."""

_NODE = 400
"""About the bytes of a node of a graph, without what it saved."""

_MOST_INSIDE = 256
_DEEP = 5
_NUMBERS = (int, float, bool, complex, str, bytes, type(None))


@dataclass(slots=True)
class Weight:
    """What was seen of the items of one container."""

    bytes: float = 0.0
    """Of each item, on average; 0 where they only refer to what others hold."""
    holds: str = "objects"
    """`tensors`, `arrays`, `numbers`, `exceptions`, `functions`, `objects`."""
    tensors: float = 0.0
    """How many tensors there are in each item, on average."""
    graphs: bool = False
    """Whether most of the items keep a graph."""
    freed: bool = False
    """Whether what those graphs had saved for backward is gone, so that only their nodes are left."""
    numel: int = 0
    """The elements of one of the tensors."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""


@dataclass(slots=True)
class _Scale:
    """Adds up one sample; each storage counts once, and not at all where several items share it."""

    storages: dict[int, tuple[int, int]] = field(default_factory=dict)  # by pointer: bytes, items that have it
    plain: int = 0
    tensors: int = 0
    first: Tensor | None = None
    kept: int = 0
    saved: int = 0
    inside: int = 0
    seen: set[int] = field(default_factory=set)

    def add(self, thing: Any, item: int, deep: int = 0) -> None:
        kind = type(thing)
        if id(thing) in self.seen or self.inside >= _MOST_INSIDE * (item + 1):
            return
        if kind not in _NUMBERS:
            self.seen.add(id(thing))
        self.inside += 1
        if issubclass(kind, Tensor):
            self._tensor(thing, item)
        elif kind in _NUMBERS:
            self.plain += sys.getsizeof(thing)
        elif _is_array(kind):
            base = thing if thing.base is None else thing.base
            self._storage(id(base), int(getattr(base, "nbytes", thing.nbytes)), item)
        elif deep < _DEEP:
            for inner in self._parts(thing):
                self.add(inner, item, deep + 1)

    def _tensor(self, tensor: Tensor, item: int) -> None:
        self.tensors += 1
        if self.first is None:
            self.first = tensor
        self.plain += 200
        self._storage(*_storage(tensor), item)
        node = None if tensor.is_inference() else tensor.grad_fn
        if node is None:
            return
        nodes, saved = graph_of(node)
        self.kept += 1
        self.saved += len(saved)
        self.plain += _NODE * nodes
        for each in saved:
            self._storage(*_storage(each), item)

    def _storage(self, pointer: int, size: int, item: int) -> None:
        known = self.storages.get(pointer)
        if known is None:
            self.storages[pointer] = (size, item)
        elif known[1] != item:
            self.storages[pointer] = (0, item)

    def _parts(self, thing: Any) -> Iterator[Any]:
        """What the object holds, and the bytes of its own."""
        kind = type(thing)
        if issubclass(kind, dict):
            self.plain += dict.__sizeof__(thing)
            for key, value in islice(dict.items(thing), _MOST_INSIDE):
                yield from (key, value)
        elif issubclass(kind, (list, tuple, set, frozenset, deque)):
            self.plain += kind.__sizeof__(thing) if kind.__module__ in ("builtins", "collections") else 64
            yield from islice(iter(thing) if kind.__module__ in ("builtins", "collections") else (), _MOST_INSIDE)
        elif issubclass(kind, BaseException):
            self.plain += 200
            yield from thing.args
            yield from _of_traceback(thing.__traceback__)
        elif issubclass(kind, nn.Module):
            for name in ("_parameters", "_buffers", "_modules"):
                yield from (each for each in thing.__dict__.get(name, {}).values() if each is not None)
        else:
            self.plain += 48
            try:
                state = object.__getattribute__(thing, "__dict__")
            except (AttributeError, TypeError):
                return
            if type(state) is dict and not callable(thing):
                self.plain += 104
                yield from islice(state.values(), _MOST_INSIDE)

    @property
    def bytes(self) -> int:
        return self.plain + sum(size for size, _ in self.storages.values())


def weigh(items: Iterable[Any], known: frozenset[int] = frozenset()) -> Weight:
    """What these items weigh. `known`: pointers of storages that count for others, a model's weights."""
    items = list(items)[-SAMPLE:]
    if not items:
        return Weight()
    scale = _Scale()
    scale.storages.update(dict.fromkeys(known, (0, -1)))
    for number, item in enumerate(items):
        scale.add(item, number)
    weight = Weight(scale.bytes / len(items), _holds(items, scale), scale.tensors / len(items))
    weight.graphs = 2 * scale.kept >= len(items)
    weight.freed = weight.graphs and scale.saved == 0
    if scale.first is not None:
        weight.numel, weight.shape = int(scale.first.numel()), tuple(int(size) for size in scale.first.shape)
        weight.dtype, weight.device = str(scale.first.dtype).removeprefix("torch."), scale.first.device.type
    return weight


def storages(models: Iterable[nn.Module]) -> frozenset[int]:
    """The pointers of what models hold."""
    return frozenset(
        _storage(tensor)[0] for model in models for each in (model.parameters(), model.buffers()) for tensor in each
    )


def graph_of(node: Any) -> tuple[int, list[Tensor]]:
    """How many nodes there are behind this one, and what they saved. Nothing that a hook would have to recompute."""
    seen, waiting = {node}, [node]
    saved: list[Tensor] = []
    while waiting and len(seen) < _MOST_NODES:
        at = waiting.pop()
        saved += _saved(at)
        for other, _ in at.next_functions:
            if other is not None and other not in seen:
                seen.add(other)
                waiting.append(other)
    return len(seen), saved


_names: dict[str, list[str]] = {}


def _saved(node: Any) -> Iterator[Tensor]:
    kind = node.name()
    names = _names.get(kind)
    if names is None:
        raw = [name for name in dir(node) if name.startswith("_raw_saved_")]
        names = _names[kind] = [] if "_raw_saved_tensors" in raw else raw
    for name in names:
        try:
            raw_saved = getattr(node, name)
            if raw_saved is None or isinstance(raw_saved, (list, tuple)) or raw_saved.unpack_hook is not None:
                continue
            tensor = getattr(node, name.replace("_raw", "", 1))
        except (RuntimeError, AttributeError):
            continue
        if isinstance(tensor, Tensor):
            yield tensor


def _storage(tensor: Tensor) -> tuple[int, int]:
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr() or id(tensor), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):  # sparse, nested, on `meta`
        return id(tensor), 0


def _of_traceback(traceback: TracebackType | None) -> Iterator[Any]:
    """The locals that a kept exception keeps."""
    while traceback is not None:
        yield from list(traceback.tb_frame.f_locals.values())[:_MOST_INSIDE]
        traceback = traceback.tb_next


def _holds(items: list[Any], scale: _Scale) -> str:
    kinds = [type(item) for item in items]
    if all(issubclass(kind, BaseException) for kind in kinds):
        return "exceptions"
    if scale.tensors * 2 >= len(items):
        return "tensors"
    if any(_is_array(kind) for kind in kinds):
        return "arrays"
    if all(kind in _NUMBERS for kind in kinds):
        return "numbers"
    return "functions" if all(callable(item) for item in items) else "objects"


def _is_array(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)
