"""Goes through what the user's program can reach by name, and says how long each container on the way is.

It begins where a name is: locals of live frames, globals of the user's modules, the models under watch, threads. From
there it follows attributes, items, closures, default arguments, hooks and caches, the shortest way first, so that each
container is met under the name by which the user knows it. It runs no code of the user's, and holds nothing after it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from types import (
    CellType,
    FrameType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch
from torch import Tensor, nn

from seismograd.memory.nodes import Container, Key, Node, Root, plain
from seismograd.places import is_users

_FEW = 64
"""A container with more items is entered only at its two ends."""

_ENDS = 12
_DEEP = 10
_CHECK = 256

_ATOMS: frozenset[type] = frozenset(
    [
        *(int, float, complex, bool, str, bytes, bytearray, type(None), range, slice, type(Ellipsis)),
        *(type(len), type(object.__init__), type(dict.fromkeys), property, staticmethod, classmethod),
        *(torch.dtype, torch.device, torch.Size, torch.layout, torch.Generator, type(NotImplemented)),
    ]
)
"""What holds nothing."""

_FOREIGN = ("seismograd.", "torch._", "torch.jit", "torch.fx", "torch.cuda", "torch.distributed", "importlib")
"""Modules whose objects are not entered: ours, and machinery."""

_HOOKS = {
    "_forward_hooks": "register_forward_hook",
    "_forward_pre_hooks": "register_forward_pre_hook",
    "_backward_hooks": "register_full_backward_hook",
    "_backward_pre_hooks": "register_full_backward_pre_hook",
}
_OF_MODULES = frozenset(
    [
        *_HOOKS,
        *("_parameters", "_modules", "_buffers", "_non_persistent_buffers_set", "_is_full_backward_hook"),
        *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"),
        *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
    ]
)


@dataclass(slots=True)
class Walk:
    """One pass. Its containers hold the user's objects: it is to be let go of before the step goes on."""

    models: Mapping[str, nn.Module] = field(default_factory=dict)
    seconds: float = 0.5
    """After so long it stops where it is."""
    containers: dict[Key, Container] = field(default_factory=dict)
    complete: bool = True
    files: dict[str, None] = field(default_factory=dict)
    """The files of the user's code that was met, those of the live frames first."""
    running: dict[tuple[str, str], bool] = field(default_factory=dict)
    """By file and name, the functions of live frames, and whether they are called again and again."""
    aliases: dict[int, set[str]] = field(default_factory=dict)
    """By id, under which other names a container is known."""
    _seen: set[int] = field(default_factory=set)
    _waiting: deque[tuple[Any, Node, Any]] = field(default_factory=deque)
    _modules: set[str] = field(default_factory=set)
    _visits: int = 0

    def go(self, frame: FrameType | None, in_loop: Any) -> Walk:
        """Walks from here. `in_loop(frame)` says whether a frame is at a line inside a loop of its function."""
        ends = perf_counter() + self.seconds
        self._seen |= {id(self), id(self.containers), id(self._seen), id(self._waiting), id(sys.modules)}
        for thing, node, owner in self._roots(frame, in_loop):
            self._meet(thing, node, owner)
        while self._waiting:
            thing, node, owner = self._waiting.popleft()
            self._visits += 1
            if self._visits % _CHECK == 0 and perf_counter() > ends:
                self.complete = False
                break
            self._enter(thing, node, owner)
        self._waiting.clear()
        return self

    # -- where names are -----------------------------------------------------------------------------------------

    def _roots(self, frame: FrameType | None, in_loop: Any) -> Iterator[tuple[Any, Node, Any]]:
        modules = dict(_user_modules())
        self._modules = {module.__name__ for module in modules.values()}
        frames = [*self._scopes(_users_frames(frame), in_loop)]
        for ident, other in sys._current_frames().items():
            if ident != threading.get_ident():
                frames += self._scopes(_users_frames(other), in_loop)
        for each, passing in frames:
            if not passing:
                yield from self._of_frame(each, passing)
        for file, module in modules.items():
            self.files.setdefault(file)
            yield from self._of_globals(vars(module), file)
        for prefix, model in self.models.items():
            yield model, _first(Root("module", prefix or "model"), prefix or "model"), None
        for each, passing in frames:
            if passing:  # what lasts longer than the call has its name by now
                yield from self._of_frame(each, passing)
        threads = threading.enumerate()
        node = _first(Root("threads", "threading"), "threads")
        self.containers[node.key] = Container(threads, node, "threads", len(threads))
        for thread in threads:
            yield thread, node.below(f"({thread.name})"), None

    def _scopes(self, frames: list[FrameType], in_loop: Any) -> Iterator[tuple[FrameType, bool]]:
        """The frames, and whether one above them calls them again and again."""
        passing = False
        for frame in frames:
            code = frame.f_code
            self.files.setdefault(code.co_filename)
            self.running[code.co_filename, plain(code.co_qualname)] = passing
            yield frame, passing
            passing = passing or (frame is not frames[-1] and in_loop(frame))

    def _of_frame(self, frame: FrameType, passing: bool) -> Iterator[tuple[Any, Node, Any]]:
        code = frame.f_code
        if code.co_flags & inspect.CO_OPTIMIZED:
            root = Root("local", code.co_qualname, code.co_filename, code.co_firstlineno, passing)
            for name, value in _locals(frame):
                yield value, _first(root, name), None
        yield from self._of_globals(frame.f_globals, code.co_filename)

    def _of_globals(self, names: Mapping[str, Any], file: str) -> Iterator[tuple[Any, Node, Any]]:
        if id(names) in self._seen:
            return
        self._seen.add(id(names))
        root = Root("global", file, file)
        for name, value in list(names.items()):
            if not (name.startswith("__") and name.endswith("__")):
                yield value, _first(root, name), None

    # -- what things hold ----------------------------------------------------------------------------------------

    def _meet(self, thing: Any, node: Node, owner: Any = None) -> None:
        kind = type(thing)
        if kind in _ATOMS or node.depth > _DEEP:
            return
        if id(thing) in self._seen:
            if kind in _GROWING and node.label.isidentifier():
                self.aliases.setdefault(id(thing), set()).add(node.label)
            return
        self._seen.add(id(thing))
        self._waiting.append((thing, node, owner))

    def _enter(self, thing: Any, node: Node, owner: Any) -> None:
        kind = type(thing)
        if issubclass(kind, Tensor):
            self._tensor(thing, node)
        elif issubclass(kind, (list, tuple, set, frozenset, deque)):
            self._sequence(thing, node, owner)
        elif issubclass(kind, (dict, MappingProxyType)):
            self._mapping(thing, node, owner)
        elif issubclass(kind, nn.Module):
            self._module(thing, node)
        elif kind is FunctionType:
            self._function(thing, node)
        elif kind is MethodType:
            self._meet(thing.__self__, node.below(".__self__"))
            self._meet(thing.__func__, node)
        elif issubclass(kind, functools.partial):
            self._meet(thing.func, node.below("(func)"))
            for each in (*thing.args, *thing.keywords.values()):
                self._meet(each, node.below("(argument)"))
        elif issubclass(kind, functools._lru_cache_wrapper):
            self._cache(thing, node)
        elif issubclass(kind, type):
            self._class(thing, node)
        elif issubclass(kind, GeneratorType):
            self._generator(thing, node)
        elif kind is CellType:
            self._cell(thing, node)
        elif issubclass(kind, ModuleType) or (kind.__module__ or "").startswith(_FOREIGN):
            return
        elif _is_array(kind):
            self.containers[node.key] = Container(thing, node, "array", int(thing.size), None, owner)
        else:
            self._object(thing, node)

    def _note(self, thing: Any, node: Node, kind: str, length: int, owner: Any) -> None:
        limit = getattr(thing, "maxlen", None) if type(thing) is deque else None
        self.containers[node.key] = Container(
            thing, node, kind, length, _capacity(owner) if limit is None else limit, owner
        )

    def _sequence(self, thing: Any, node: Node, owner: Any) -> None:
        kind: Any = next(base for base in (list, tuple, set, frozenset, deque) if issubclass(type(thing), base))
        length = kind.__len__(thing)
        if kind is not tuple and kind is not frozenset:
            self._note(thing, node, kind.__name__, length, owner)
        if kind in (set, frozenset):
            items: list[Any] = list(islice(kind.__iter__(thing), _ENDS))
            numbers: Iterable[int] = range(len(items))
        else:
            numbers = _ends(length)
            items = [kind.__getitem__(thing, at) for at in numbers if at < kind.__len__(thing)]
        for at, item in zip(numbers, items, strict=False):
            self._meet(item, node.below(f"[{at}]"))

    def _mapping(self, thing: Any, node: Node, owner: Any) -> None:
        if issubclass(type(thing), MappingProxyType):
            return
        length = dict.__len__(thing)
        self._note(thing, node, "dict", length, owner)
        try:
            items = list(dict.items(thing)) if length <= _FEW else list(_two_ends(thing))
        except RuntimeError:  # another thread changes it
            return
        for key, value in items:
            label = f"[{key!r}]" if type(key) in (str, int) and len(str(key)) < 40 else "[...]"
            self._meet(value, node.below(label), None)
            if type(key) not in _ATOMS:
                self._meet(key, node.below("[key]"), None)

    def _tensor(self, tensor: Tensor, node: Node) -> None:
        size = _numel(tensor)
        if size is not None and not node.label.startswith("["):
            self.containers[node.key] = Container(tensor, node, "tensor", size)
        hooks = _hooks_of.__get__(tensor) if type(tensor) in _PLAIN else None
        if hooks:
            place = node.below(".register_hook", sort="hooks", holder=type(tensor))
            self.containers[place.key] = Container(hooks, place, "hooks", len(hooks), None, tensor)
            for hook in list(hooks.values())[-_ENDS:]:
                self._meet(hook, place.below("(hook)"))

    def _module(self, module: nn.Module, node: Node) -> None:
        state = _state(module)
        kind = type(module)
        for name, adder in _HOOKS.items():
            hooks = state.get(name)
            if hooks:
                place = node.below(f".{adder}", sort="hooks", holder=kind)
                self.containers[place.key] = Container(hooks, place, "hooks", len(hooks), None, module)
                for hook in list(hooks.values())[-_ENDS:]:
                    self._meet(hook, place.below("(hook)"))
        for name in ("_parameters", "_buffers", "_modules"):
            for each, value in list((state.get(name) or {}).items()):
                if value is not None:
                    label = f"[{each}]" if name == "_modules" and each.isdigit() else f".{each}"
                    self._meet(value, node.below(label, holder=kind), module)
        for name, value in list(state.items()):
            if name not in _OF_MODULES:
                self._meet(value, node.below(f".{name}", holder=kind), module)
        self._meet(kind, node.below("(class)"))

    def _function(self, function: FunctionType, node: Node) -> None:
        code = function.__code__
        wrapped = function.__dict__.get("__wrapped__")
        if wrapped is not None:
            self._meet(wrapped, node)
        if not is_users(code.co_filename):
            return
        self.files.setdefault(code.co_filename)
        if function.__closure__:
            for name, cell in zip(code.co_freevars, function.__closure__, strict=True):
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue
                self._meet(value, node.below(name, function=function, sort="closure"), None)
        if function.__defaults__:
            names = code.co_varnames[: code.co_argcount][-len(function.__defaults__) :]
            for name, value in zip(names, function.__defaults__, strict=True):
                self._meet(value, node.below(name, function=function, sort="default"))
        for name, value in (function.__kwdefaults__ or {}).items():
            self._meet(value, node.below(name, function=function, sort="default"))
        for name, value in list(function.__dict__.items()):
            self._meet(value, node.below(f".{name}", function=function))

    def _cache(self, wrapper: Any, node: Node) -> None:
        info = wrapper.cache_info()
        self.containers[node.key] = Container(wrapper, node, "cache", int(info.currsize), info.maxsize)
        inner = getattr(wrapper, "__wrapped__", None)
        if inner is not None:
            self._meet(inner, node.below("(function)"))

    def _class(self, kind: type, node: Node) -> None:
        if kind.__module__ not in self._modules and kind.__module__ != "__main__":
            return
        for name, value in list(vars(kind).items()):
            if name.startswith("__") and name.endswith("__") and name != "__init__":
                continue
            inner = value.__func__ if type(value) in (staticmethod, classmethod) else value
            self._meet(inner, node.below(f"{kind.__name__}.{name}", holder=kind, sort="class"))

    def _generator(self, generator: Any, node: Node) -> None:
        frame = generator.gi_frame
        if frame is not None and is_users(frame.f_code.co_filename):
            root = Root("local", frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_code.co_firstlineno)
            for name, value in _locals(frame):
                self._meet(value, Node(None, name, root, hash((node.key, name)), node.depth + 1))

    def _cell(self, cell: CellType, node: Node) -> None:
        try:
            self._meet(cell.cell_contents, node)
        except ValueError:
            return

    def _object(self, thing: Any, node: Node) -> None:
        kind = type(thing)
        if issubclass(kind, BaseException):
            return
        state = _state(thing)
        for name, value in list(state.items()):
            if type(name) is str:
                self._meet(value, node.below(f".{name}", holder=kind), thing)
        for name, value in _slots(thing):
            self._meet(value, node.below(f".{name}", holder=kind), thing)
        self._meet(kind, node.below("(class)"))


def _first(root: Root, name: str) -> Node:
    return Node(None, name, root, hash((root.scope, root.owner, root.file, name)), 0)


def _user_modules() -> Iterator[tuple[str, ModuleType]]:
    for module in list(sys.modules.values()):
        if type(module) is ModuleType:
            file = module.__dict__.get("__file__")
            if isinstance(file, str) and is_users(file):
                yield file, module


def _users_frames(frame: FrameType | None) -> list[FrameType]:
    """The user's frames from this one up, the outermost first."""
    found: list[FrameType] = []
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """The locals of a function's frame, by name."""
    known = frame.f_locals
    found = list(known.items())
    # Before Python 3.13 the frame keeps this dict, and with it the values of now; unless the user has it from locals().
    if type(known) is dict and sys.getrefcount(known) <= 3:
        known.clear()
    return found


def _state(thing: Any) -> dict[str, Any]:
    try:
        state = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return state if type(state) is dict else {}


def _slots(thing: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(thing).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            descriptor = kind.__dict__.get(name)
            if inspect.ismemberdescriptor(descriptor):
                try:
                    yield name, descriptor.__get__(thing)
                except AttributeError:
                    continue


_CAPACITIES = frozenset(
    [
        *("capacity", "maxlen", "max_len", "max_length", "max_size", "maxsize", "max_items", "max_history", "limit"),
        *("size_limit", "buffer_size", "pool_size", "queue_size", "memory_size", "history_size", "window_size"),
    ]
)


def _capacity(owner: Any) -> int | None:
    """What the object around a container says is its most."""
    if owner is None:
        return None
    for name, value in _state(owner).items():
        if type(value) is int and name.lstrip("_").lower() in _CAPACITIES:
            return value
    return None


def _numel(tensor: Tensor) -> int | None:
    try:
        return int(tensor.numel())
    except (RuntimeError, NotImplementedError):
        return None


def _is_array(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def _ends(length: int) -> Iterable[int]:
    return range(length) if length <= _FEW else (*range(_ENDS), *range(length - _ENDS, length))


def _two_ends(thing: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    yield from islice(dict.items(thing), _ENDS)
    yield from islice(reversed(dict.items(thing)), _ENDS)


_PLAIN = (Tensor, nn.Parameter)
_hooks_of: Any = torch._C.TensorBase._backward_hooks
_GROWING = (list, dict, set, deque)
