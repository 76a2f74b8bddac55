"""Whether a dataset may be copied into another process and asked for samples there, and if not, why."""

from __future__ import annotations

import dis
import functools
import io
import logging
import mmap
import os
import sys
from collections.abc import Iterator, Mapping, Sized
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.utils import data

from seismograd.onlookers.data.workers import _methods, _names
from seismograd.places import is_users

_SHARED_KINDS = (
    "h5py lmdb sqlite3 psycopg psycopg2 pymysql redis pyodbc pymongo sqlalchemy socket ssl requests http zmq grpc"
    " multiprocessing _multiprocessing _thread queue _queue asyncio concurrent subprocess cv2 decord av netCDF4 tables"
    " rasterio tensorflow jax"
)
_HOLD = frozenset(_SHARED_KINDS.split())
"""Packages whose objects are open files, connections, locks or memory that a copy of the process would share."""

_CHANGES = (
    "write writelines write_bytes write_text save savez savez_compressed savetxt to_csv to_parquet to_pickle imwrite"
    " dump unlink remove rename rmtree rmdir mkdir makedirs touch commit put put_nowait send sendall post acquire"
    " get_nowait popleft"
)
_WRITES = frozenset(_CHANGES.split())
"""What is called like this changes something that is not the dataset's own."""

_SAMPLERS = (
    data.SequentialSampler,
    data.RandomSampler,
    data.SubsetRandomSampler,
    data.WeightedRandomSampler,
    data.DistributedSampler,
)
_PLAIN = (str, bytes, int, float, ModuleType, type, logging.Logger)
_DEEP, _MOST = 4, 400


def refusal(iterator: Any) -> str | None:
    """Why no copy of this loader can be tried; None if it can."""
    if not hasattr(os, "fork") or not sys.platform.startswith("linux"):
        return "processes cannot be forked safely on this system"
    dataset = iterator._dataset
    if isinstance(dataset, data.IterableDataset):
        return "the dataset is iterable: a copy would begin from its start, and may use up what it reads"
    if not isinstance(dataset, Sized) or not len(dataset):
        return "the dataset has no length"
    sampler = getattr(iterator._index_sampler, "sampler", iterator._index_sampler)
    if not isinstance(sampler, _SAMPLERS):
        return f"the sampler {type(sampler).__name__} may ask for samples in a way of its own"
    shared: str | None = None
    stores = False
    for name, value in _held(dataset, iterator._collate_fn, getattr(iterator, "_worker_init_fn", None)):
        why = _is_open(value)
        if why is not None:
            return f"`{name}` {why}"
        if shared is None and _is_shared(value):
            shared = name
        for function in _methods(value).values() if _has_code(value) else ():
            writes = sorted(_names(function) & _WRITES)
            if writes:
                return f"`{function.__qualname__}` may write (`{writes[0]}`)"
            stores = stores or _stores(function)
    if shared is not None and stores:  # a tensor that workers were spawned with is shared, and mostly only read
        return f"`{shared}` is memory that processes share, and something may be written to it"
    return None


def caches(dataset: Any) -> bool:
    """Whether its code speaks of a cache, so that a first pass over it may be slow by nature."""
    for _, value in _held(dataset):
        for function in _methods(value).values() if _has_code(value) else ():
            names = {*_names(function), *function.__code__.co_varnames}
            if any("cache" in name.lower() or "memo" in name.lower() for name in names):
                return True
    return False


def _has_code(value: Any) -> bool:
    return isinstance(value, FunctionType) or (hasattr(value, "__dict__") and not isinstance(value, Tensor))


def _is_shared(value: Any) -> bool:
    """Whether another process sees what is written to this tensor."""
    known: Any = getattr(value, "is_shared", None) if isinstance(value, Tensor) else None
    return bool(known is not None and known())


def _stores(function: FunctionType) -> bool:
    """Whether it puts something into what it has: by an index, or by an op that works in place."""
    if any(name.endswith("_") and not name.startswith("_") for name in _names(function)):
        return True
    return any(step.opname.startswith("STORE_SUBSCR") for step in dis.get_instructions(function))


def _is_open(value: Any) -> str | None:
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if isinstance(value, io.IOBase):
        return None if value.closed or isinstance(value, (io.BytesIO, io.StringIO)) else "is an open file"
    if isinstance(value, Tensor):
        return f"lies on {value.device.type}, which a copy cannot use" if value.device.type != "cpu" else None
    if isinstance(value, mmap.mmap):
        return "is a mapped file"
    if kind.__name__ == "memmap" and getattr(value, "mode", "r") not in {"r", "c"}:
        return "is a mapped file that can be written to"
    if isinstance(value, nn.Module) and any(parameter.is_cuda for parameter in value.parameters()):
        return "is a model on an accelerator"
    if package in _HOLD and not isinstance(value, (type, ModuleType, FunctionType)):
        return f"is a {package} {kind.__name__}, which a copy of the process would share"
    return None


def _held(*roots: Any) -> Iterator[tuple[str, Any]]:
    """What these hold, directly or through what they hold, and the globals that their code uses."""
    todo: list[tuple[str, Any, int]] = [(_title(root), root, 0) for root in roots if root is not None]
    seen: set[int] = set()
    while todo and len(seen) < _MOST:
        name, value, deep = todo.pop(0)
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen.add(id(value))
        yield name, value
        if deep < _DEEP:
            todo += [(inner, thing, deep + 1) for inner, thing in _inside(name, value)]


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, functools.partial):
        yield from ((name, each) for each in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, MethodType):
        yield name, value.__self__
    elif isinstance(value, FunctionType):
        yield from _of_function(name, value)
    elif isinstance(value, Mapping):
        yield from ((f"{name}[...]", each) for each in islice(value.values(), 16))
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"{name}[...]", each) for each in islice(value, 16))
    elif hasattr(value, "__dict__") and not isinstance(value, Tensor):
        yield from ((f"{name}.{inner}", each) for inner, each in list(vars(value).items())[:64])
        for function in _methods(value).values():
            yield from _of_function(name, function)


def _of_function(name: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    for cell in function.__closure__ or ():
        try:
            yield name, cell.cell_contents
        except ValueError:  # empty as yet
            continue
    if is_users(function.__code__.co_filename):
        for used in sorted(_names(function)):
            if used in function.__globals__:
                yield used, function.__globals__[used]


def _title(root: Any) -> str:
    return getattr(root, "__qualname__", None) or type(root).__name__
