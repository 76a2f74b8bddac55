"""Turns any nesting of values into JSON and plain tensors, and back. Nothing is pickled, and no class is looked up.

A value that JSON knows stands for itself. All else is a dict whose first key is its kind: `{"tuple": [...]}`. Objects
of the user's classes come back as stand-ins with the same attributes; what cannot be stored is `{"lost": ...}`.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from seismograd.replay.numbers import tensors_in

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
"""By their names; the only names in a capture that are looked up in torch."""

_NATIVE = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
}
"""What every version of safetensors can hold; others are stored as bytes."""

_REAL_OF = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}

_DEEPEST = 10
_LARGEST_INT = 2**63
_MOST_ATTRIBUTES = 64

_MOST_ITEMS = 10_000
"""A longer list is no batch: a table, a vocabulary."""


class UnstorableError(Exception):
    """A tensor of a kind that cannot be stored; the message names the kind."""


class Record(SimpleNamespace):
    """Stands in for an object of the user's: the same attributes, none of its methods."""


class NamedRecord(dict[Any, Any]):
    """Stands in for a mapping of the user's: a dict whose items are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class TupleRecord(tuple[Any, ...]):
    """Stands in for a named tuple of the user's."""

    def __getattr__(self, name: str) -> Any:
        names = self.__dict__.get("names", ())
        if name not in names:
            raise AttributeError(name)
        return self[names.index(name)]


class Packer:
    """Packs values one after the other. Tensors are only noted, under a name each, until `contents` is asked for."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        """What could not be stored, and why."""
        self._parts: dict[str, tuple[Tensor, bool]] = {}
        self._known: dict[int, tuple[Tensor, dict[str, Any]]] = {}

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(tensor.numel() * tensor.element_size() for tensor, _ in self._parts.values())

    def contents(self) -> dict[str, Tensor]:
        """The tensors as they are to be stored: on the CPU, contiguous, none sharing memory with another."""
        found: dict[str, Tensor] = {}
        taken: set[int] = set()
        for name, (tensor, as_bytes) in self._parts.items():
            plain = tensor.resolve_conj().resolve_neg().cpu().contiguous()
            if as_bytes:
                plain = plain.reshape(-1).view(torch.uint8)
            if plain.untyped_storage().data_ptr() in taken or plain.numel() == 0:
                plain = plain.clone()
            taken.add(plain.untyped_storage().data_ptr())
            found[name] = plain
        return found

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensor(self, tensor: Tensor, name: str) -> dict[str, Any]:
        """Describes the tensor, whose numbers will stand under `name`; an `UnstorableError` if they cannot."""
        known = self._known.get(id(tensor))
        if known is None:
            told: dict[str, Any] = {
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": [int(size) for size in tensor.shape],
                "device": str(tensor.device),
                "requires_grad": tensor.requires_grad,
                **self._stored(_storable(tensor), name),
            }
            known = self._known[id(tensor)] = (tensor, {"tensor": told})
        return known[1]

    def _stored(self, tensor: Tensor, name: str) -> dict[str, Any]:
        if tensor.layout == torch.sparse_coo:
            return {
                "layout": "coo",
                "indices": self._add(tensor._indices(), f"{name}.indices"),
                "values": self._stored(tensor._values(), f"{name}.values"),
                "coalesced": tensor.is_coalesced(),
            }
        if tensor.layout == torch.sparse_csr:
            return {
                "layout": "csr",
                "rows": self._add(tensor.crow_indices(), f"{name}.rows"),
                "columns": self._add(tensor.col_indices(), f"{name}.columns"),
                "values": self._stored(tensor.values(), f"{name}.values"),
            }
        told: dict[str, Any] = {}
        if not tensor.is_contiguous():
            strides = tensor.stride()
            order = sorted(range(tensor.ndim), key=lambda axis: (-strides[axis], axis))
            if tensor.permute(order).is_contiguous():
                tensor, told = tensor.permute(order), {"order": order}  # as it lies in memory: channels last, say
        if tensor.dtype in _REAL_OF:
            return {**told, "complex": self._add(torch.view_as_real(tensor.resolve_conj()), name)}
        kind = "plain" if tensor.dtype in _NATIVE else "bytes"
        return {**told, kind: self._add(tensor, name)}

    def _add(self, tensor: Tensor, name: str) -> str:
        free, number = name, 2
        while free in self._parts:
            free, number = f"{name}~{number}", number + 1
        self._parts[free] = (tensor, tensor.dtype not in _NATIVE)
        return free

    # -- nestings ------------------------------------------------------------------------------------------------

    def pack(self, value: Any, path: str, depth: int = 0) -> Any:
        """The value as JSON; `path` names it, and its tensors."""
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            return value if abs(value) < _LARGEST_INT else {"int": hex(value)}
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, Tensor):
            try:
                return self.tensor(value, path)
            except UnstorableError as why:
                return self._lose(str(why), path)
        if depth > _DEEPEST:
            return self._lose("nested too deeply", path)
        if isinstance(value, (list, tuple, set, frozenset, Mapping)) or hasattr(value, "keys"):
            try:
                many = len(value)
            except TypeError:
                return self._lose(f"{type(value).__name__} without a length", path)
            if many > _MOST_ITEMS:
                return self._lose(f"{type(value).__name__} of {many:,} items", path)
        packed = self._pack_known(value, path, depth)
        return self._pack_object(value, path, depth) if packed is None else packed

    def _pack_known(self, value: Any, path: str, depth: int) -> dict[str, Any] | None:
        """What comes back as what it was."""
        kind = type(value)
        if kind is complex:
            return {"complex": [self.pack(value.real, path), self.pack(value.imag, path)]}
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if kind is torch.dtype:
            return {"dtype": str(value).removeprefix("torch.")}
        if kind is torch.device:
            return {"device": str(value)}
        if kind in (slice, range):
            parts = [value.start, value.stop, value.step]
            return {kind.__name__: [self.pack(part, path, depth + 1) for part in parts]}
        if kind is torch.Size:
            return {"size": [int(size) for size in value]}
        if kind is PackedSequence:
            return {"packed_sequence": self._items(list(value), path, depth)}
        if kind in (list, tuple, set, frozenset):
            return {kind.__name__: self._items(list(value), path, depth)}
        if kind is dict:
            return {"dict": self._pairs(value.items(), path, depth)}
        if kind.__module__ == "numpy" and hasattr(value, "dtype"):
            return self._pack_numpy(value, path, depth)
        return None

    def _pack_numpy(self, value: Any, path: str, depth: int) -> dict[str, Any] | None:
        if not hasattr(value, "ndim") or value.dtype.kind not in "biufc":
            return None
        try:
            packed = self.pack(torch.as_tensor(value.copy()), path, depth + 1)
        except (TypeError, RuntimeError):  # a dtype that torch does not have
            return None
        return {"array": packed, "scalar": type(value).__name__ != "ndarray"}

    def _pack_object(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        """What comes back as a stand-in, if at all."""
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, (Enum, type, nn.Module)) or callable(value):
            return self._lose(name, path)
        if isinstance(value, tuple):
            names = [str(each) for each in getattr(value, "_fields", ())]
            return {"record": "tuple", "class": name, "names": names, "items": self._items(list(value), path, depth)}
        if isinstance(value, (list, set, frozenset)):
            return {"list" if isinstance(value, list) else "set": self._items(list(value), path, depth)}
        if isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "__getitem__")):
            pairs = [(key, value[key]) for key in list(value.keys())]
            return {"record": "mapping", "class": name, "items": self._pairs(pairs, path, depth)}
        if not (dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace) or tensors_in(value)):
            return self._lose(name, path)
        attributes = _attributes(value)
        if len(attributes) > _MOST_ATTRIBUTES:
            return self._lose(name, path)
        items = [[key, self.pack(item, f"{path}.{key}", depth + 1)] for key, item in attributes.items()]
        return {"record": "object", "class": name, "items": items}

    def _items(self, items: list[Any], path: str, depth: int) -> list[Any]:
        return [self.pack(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(items)]

    def _pairs(self, pairs: Any, path: str, depth: int) -> list[Any]:
        return [
            [self.pack(key, f"{path} key", depth + 1), self.pack(item, f"{path}[{key!r}]", depth + 1)]
            for key, item in pairs
        ]

    def _lose(self, what: str, path: str) -> dict[str, Any]:
        self.lost.append(f"{path} is {_article(what)}, which cannot be stored")
        return {"lost": what}


class Unpacker:
    """Makes values again from what a `Packer` noted, and the tensors that were stored."""

    def __init__(self, tensors: Mapping[str, Tensor], place: Callable[[str], torch.device]) -> None:
        self._tensors, self._place = tensors, place
        self._made: dict[str, Tensor] = {}

    def tensor(self, packed: Any) -> Tensor:
        """The tensor that is described; the same one for the same name. A `ValueError` says what is wrong."""
        told = packed["tensor"]
        key = next((told[kind] for kind in ("plain", "bytes", "complex", "indices", "rows") if kind in told), "")
        if key not in self._made:
            tensor = self._built(told, DTYPES[told["dtype"]], tuple(told["shape"]))
            if tuple(tensor.shape) != tuple(told["shape"]):
                raise ValueError(f"{key!r} is of shape {tuple(tensor.shape)}, and should be of {told['shape']}")
            tensor = tensor.to(self._place(str(told["device"])))
            if told["requires_grad"] and (tensor.is_floating_point() or tensor.is_complex()):
                tensor.requires_grad_()
            self._made[key] = tensor
        return self._made[key]

    def _built(self, told: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        if told.get("layout") == "coo":
            values = self._values(told, dtype)
            made = torch.sparse_coo_tensor(
                self._fetch(told["indices"]), values, shape, check_invariants=True, is_coalesced=bool(told["coalesced"])
            )
            return made
        if told.get("layout") == "csr":
            rows, columns = self._fetch(told["rows"]), self._fetch(told["columns"])
            with warnings.catch_warnings(action="ignore"):  # that they are in beta was said in the run
                return torch.sparse_csr_tensor(rows, columns, self._values(told, dtype), shape, check_invariants=True)
        order = told.get("order")
        if order is not None and sorted(order) != list(range(len(shape))):
            raise ValueError(f"{order!r} is no order of {len(shape)} axes")
        lying = shape if order is None else tuple(shape[axis] for axis in order)
        return _laid_out(self._plain(told, dtype, lying), order)

    def _values(self, told: Any, dtype: torch.dtype) -> Tensor:
        inner = told["values"]
        name = next(inner[kind] for kind in ("plain", "bytes", "complex") if kind in inner)
        stored = self._fetch(name)
        shape = tuple(stored.shape[:-1]) if "complex" in inner else tuple(stored.shape)
        order = inner.get("order")
        return _laid_out(self._plain(inner, dtype, shape), order)

    def _plain(self, told: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        if "complex" in told:
            tensor = torch.view_as_complex(self._fetch(told["complex"]))
        elif "bytes" in told:
            tensor = self._fetch(told["bytes"]).view(dtype).reshape(shape)
        else:
            tensor = self._fetch(told["plain"])
        if tensor.dtype != dtype:
            raise ValueError(f"a tensor of {tensor.dtype} should be of {dtype}")
        return tensor

    def _fetch(self, name: Any) -> Tensor:
        if name not in self._tensors:
            raise ValueError(f"the tensor {name!r} is missing")
        return self._tensors[name].clone()  # on its own: what is read from a file shares one memory

    def value(self, packed: Any) -> Any:
        """The value that was packed; `Lost` stands where something could not be stored."""
        if packed is None or isinstance(packed, (bool, str, int, float)):
            return packed
        kind = "record" if "record" in packed else next(iter(packed))
        if kind == "tensor":
            return self.tensor(packed)
        if kind == "array":
            array = self.tensor(packed["array"]).detach().cpu().numpy()
            return array[()] if packed["scalar"] else array
        if kind == "record":
            return self._record(packed)
        if kind in _SIMPLE:
            return _SIMPLE[kind](packed[kind])
        items = packed[kind]
        if kind == "dict":
            return dict(self._pairs(items))
        if kind in _COLLECTIONS:
            return _COLLECTIONS[kind]([self.value(item) for item in items])
        raise ValueError(f"there are no values of the kind {kind!r}")

    def _record(self, packed: Any) -> Any:
        kind, items = packed["record"], packed["items"]
        if kind == "mapping":
            return NamedRecord(self._pairs(items))
        if kind == "tuple":
            made = TupleRecord(self.value(item) for item in items)
            made.__dict__["names"] = tuple(str(name) for name in packed["names"])
            return made
        if kind != "object":
            raise ValueError(f"there are no records of the kind {kind!r}")
        record = Record()
        for name, item in items:
            if not isinstance(name, str) or name.startswith("__"):
                raise ValueError(f"{name!r} is no name of an attribute")
            record.__dict__[name] = self.value(item)
        return record

    def _pairs(self, items: Any) -> Iterator[tuple[Any, Any]]:
        for key, item in items:
            yield self.value(key), self.value(item)


@dataclasses.dataclass(frozen=True, slots=True)
class Lost:
    """Stands where a value could not be stored."""

    what: str


_SIMPLE: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": lambda text: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text],
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "dtype": lambda name: DTYPES[name],
    "device": torch.device,
    "size": lambda sizes: torch.Size([int(size) for size in sizes]),
    "lost": lambda what: Lost(str(what)),
}

_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "slice": lambda parts: slice(*parts),
    "range": lambda parts: range(*parts),
    "complex": lambda parts: complex(*parts),
    "packed_sequence": lambda parts: PackedSequence(*parts),
}


def lost_in(value: Any, depth: int = 0) -> list[str]:
    """What is missing in an unpacked value."""
    if isinstance(value, Lost):
        return [value.what]
    if depth > _DEEPEST + 2:
        return []
    inside: list[Any] = []
    if isinstance(value, Mapping):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = list(value)
    elif isinstance(value, Record):
        inside = list(vars(value).values())
    return [what for one in inside for what in lost_in(one, depth + 1)]


def _storable(tensor: Tensor) -> Tensor:
    kind = type(tensor)
    if kind not in (Tensor, nn.Parameter):
        raise UnstorableError(f"tensor of the class {kind.__name__}")
    if tensor.is_meta:
        raise UnstorableError("tensor on the meta device")
    if tensor.is_nested:
        raise UnstorableError("nested tensor")
    if tensor.is_quantized:
        raise UnstorableError("quantized tensor")
    if tensor.layout not in (torch.strided, torch.sparse_coo, torch.sparse_csr):
        raise UnstorableError(f"tensor of the layout {str(tensor.layout).removeprefix('torch.')}")
    return tensor.detach()


def _laid_out(tensor: Tensor, order: Any) -> Tensor:
    """With its axes in the right order again, lying in memory as they did."""
    if order is None:
        return tensor
    back = [0] * len(order)
    for at, axis in enumerate(order):
        back[axis] = at
    return tensor.permute(back)


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", None) or {})
    for kind in type(value).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if hasattr(value, name):
                found.setdefault(name, getattr(value, name))
    return {name: item for name, item in found.items() if not name.startswith("__")}


def _article(what: str) -> str:
    return what if what.startswith("nested too") else f"{'an' if what[:1] in 'aeiou' else 'a'} {what}"
