"""What the workers of a loader share that they should not: random generators, and the samples themselves."""

from __future__ import annotations

import dis
import functools
import random
import sys
import weakref
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from seismograd.onlookers.nested import tensors_in
from seismograd.places import is_users

_GENERATORS = (torch.Generator, random.Random)
_RESEEDS = frozenset(
    [
        "get_worker_info",
        "worker_info",
        "seed",
        "manual_seed",
        "default_rng",
        "RandomState",
        "Random",
        "Generator",
        "initial_seed",
        "spawn",
        "set_state",
        "setstate",
        "SeedSequence",
        "Philox",
        "PCG64",
        "jumped",
    ]
)
"""Whoever calls one of these outside of its constructor may give each worker, or each sample, numbers of its own."""

_DIFFERS = frozenset(
    ["get_worker_info", "initial_seed", "getpid", "time", "time_ns", "urandom", "get_state", "SeedSequence"]
)
_DRAWS = frozenset(
    [
        "rand",
        "randn",
        "randint",
        "rand_like",
        "randn_like",
        "randperm",
        "random",
        "random_sample",
        "normal",
        "standard_normal",
        "uniform",
        "choice",
        "choices",
        "integers",
        "shuffle",
        "permutation",
        "permuted",
        "sample",
        "bernoulli",
        "multinomial",
        "gauss",
    ]
)
_LIBRARIES = frozenset({"torch", "np", "numpy", "random"})
_DEEP = 3


class Workers:
    """Looks once at each loader with several workers, and compares what the workers of one round bring."""

    def __init__(self) -> None:
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._told: dict[str, Any] = {}
        self._iterator: weakref.ref[Any] | None = None
        self._round: list[tuple[float, ...]] = []
        self._last: tuple[float, ...] | None = None
        self._number = -1
        self._same = 0

    def batch_came(self, batch: Any, iterator: Any) -> None:
        if self._iterator is None or self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)
            self._number, self._round = -1, []
            self._look(iterator)
        if self._same < 64:
            self._compare(batch, iterator)

    def restart(self) -> None:
        self._round, self._number = [], -1

    def told(self) -> dict[str, Any]:
        told, self._told = self._told, {}
        return told

    # -- generators ----------------------------------------------------------------------------------------------

    def _look(self, iterator: Any) -> None:
        dataset = getattr(iterator, "_dataset", None)
        try:
            if dataset is None or dataset in self._seen:
                return
            self._seen.add(dataset)
        except TypeError:  # what cannot be held weakly, or compares in a way of its own
            return
        init = getattr(iterator, "_worker_init_fn", None)
        workers = int(iterator._num_workers)
        again = not getattr(iterator, "_persistent_workers", False)
        if init is None:
            for owner, name, kind in _own_generators(dataset):
                self._told["generator"] = {
                    "owner": owner,
                    "name": name,
                    "kind": kind,
                    "workers": workers,
                    "again": again,
                }
                return
        else:
            seeder = _constant_seed(init)
            if seeder is not None and _draws(dataset, seeder):
                code = seeder.__code__
                self._told["seeded"] = {
                    "function": seeder.__qualname__,
                    "file": code.co_filename,
                    "line": code.co_firstlineno,
                    "workers": workers,
                }

    # -- samples -------------------------------------------------------------------------------------------------

    def _compare(self, batch: Any, iterator: Any) -> None:
        """Counts rounds in which every worker brought the same batch, other than that of the round before."""
        workers = int(iterator._num_workers)
        number = int(getattr(iterator, "_rcvd_idx", 0)) - 1
        mark = _mark(batch)
        if mark is None or number < 0:
            return
        if number != self._number + 1 or number % workers == 0:
            self._round = []
        self._number = number
        self._round.append(mark)
        if len(self._round) < workers or number % workers != workers - 1:
            return
        if all(other == mark for other in self._round) and mark != self._last:
            self._same += 1
            if self._same >= 3:
                dataset = getattr(iterator, "_dataset", None)
                self._told["same"] = {
                    "rounds": self._same,
                    "workers": workers,
                    "dataset": type(dataset).__name__,
                    "iterable": isinstance(dataset, torch.utils.data.IterableDataset),
                }
        elif mark != self._last:
            self._same = 0
        self._last = mark
        self._round = []


def _mark(batch: Any) -> tuple[float, ...] | None:
    """A few numbers of every tensor of a batch, by which it can be told from others."""
    tensors = [tensor for tensor in tensors_in(batch) if _is_plain(tensor) and tensor.device.type == "cpu"]
    if not tensors:
        return None
    numbers: list[float] = []
    for tensor in tensors[:4]:
        flat = tensor.detach().reshape(-1)
        numbers += [float(flat.numel()), *map(float, flat[:: max(1, flat.numel() // 16)][:16].tolist())]
    return tuple(numbers) if len(set(numbers)) > 8 else None


def _is_plain(tensor: Tensor) -> bool:
    return bool(tensor.numel()) and not tensor.is_complex() and tensor.layout == torch.strided


def _is_generator(value: Any) -> bool:
    if isinstance(value, _GENERATORS):
        return not isinstance(value, random.SystemRandom)
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState))


_ENTRIES = frozenset(["__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward"])
"""Where the making of a sample begins."""


def _own_generators(dataset: Any) -> Iterator[tuple[str, str, str]]:
    """Generators that samples are made with and that nobody seeds anew: where, under which name, of which kind."""
    called: set[str] = set(_ENTRIES)
    for thing in _parts(dataset):
        methods = _methods(thing)
        if any(_names(function) & _RESEEDS for function in methods.values()):
            continue
        running = _running(methods, called)
        used = {name for function in running for name in _names(function)}
        called |= used
        for name, value in vars(thing).items() if hasattr(thing, "__dict__") else ():
            if _is_generator(value) and name in used:
                yield type(thing).__name__, f"self.{name}", type(value).__name__
        for function in running:
            for name in sorted(_names(function)):
                value = function.__globals__.get(name)
                if _is_generator(value) and _names(function) & _DRAWS:
                    yield function.__qualname__, name, type(value).__name__


def _running(methods: Mapping[str, FunctionType], called: set[str]) -> list[FunctionType]:
    """The methods that run when a sample is made: those called from outside, and those that they call."""
    todo = [name for name in methods if name in called]
    seen: dict[str, FunctionType] = {}
    while todo:
        name = todo.pop()
        if name not in seen:
            seen[name] = methods[name]
            todo += [other for other in _names(methods[name]) if other in methods]
    return list(seen.values())


def _parts(dataset: Any) -> Iterator[Any]:
    """The dataset, and the objects of the user's that it holds: other datasets, transforms."""
    todo: list[tuple[Any, int]] = [(dataset, 0)]
    seen: set[int] = set()
    while todo and len(seen) < 64:
        thing, deep = todo.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        if deep >= _DEEP or not hasattr(thing, "__dict__"):
            continue
        for value in list(vars(thing).values())[:64]:
            for inner in value[:16] if isinstance(value, (list, tuple)) else (value,):
                if hasattr(inner, "__dict__") and not isinstance(inner, (type, ModuleType, Tensor)):
                    todo.append((inner, deep + 1))


def _methods(thing: Any) -> dict[str, FunctionType]:
    """The user's code that belongs to it: a function itself, every method but the constructor."""
    if isinstance(thing, FunctionType):
        found: dict[str, Any] = {"__call__": thing}
    else:
        found = {name: value for kind in reversed(type(thing).__mro__) for name, value in vars(kind).items()}
        found = {name: getattr(value, "__func__", value) for name, value in found.items() if name != "__init__"}
    return {
        name: function
        for name, function in found.items()
        if isinstance(function, FunctionType) and is_users(function.__code__.co_filename)
    }


def _names(function: FunctionType) -> set[str]:
    """What its code calls by name: attributes, globals."""
    return {name for code in _codes(function.__code__) for name in code.co_names}


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code, and what is written in it: comprehensions, inner functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _constant_seed(init: Any) -> FunctionType | None:
    """The function that gives every worker the same seed: it seeds, and does not look at which worker it is."""
    place = 0
    if isinstance(init, functools.partial):
        place, init = len(init.args), init.func
    if not isinstance(init, FunctionType) or init.__code__.co_argcount <= place:
        return None
    code = init.__code__
    names = _names(init)
    if not any("seed" in name.lower() for name in names) or names & _DIFFERS or _loads(code, code.co_varnames[place]):
        return None
    return init


def _loads(code: CodeType, name: str) -> bool:
    return name in code.co_cellvars or any(
        step.argval == name or (isinstance(step.argval, tuple) and name in step.argval)
        for step in dis.get_instructions(code)
        if step.opname.startswith("LOAD")
    )


def _draws(dataset: Any, seeder: FunctionType) -> bool:
    """Whether random numbers of a kind that `seeder` seeds are drawn for its samples."""
    libraries = _LIBRARIES & _names(seeder)
    for thing in _parts(dataset):
        if type(thing).__name__.startswith("Random") and (not libraries or "torch" in libraries):
            return True
        for function in _methods(thing).values():
            names = _names(function)
            if names & _DRAWS and (not libraries or names & libraries):
                return True
    return False
