"""The user's variables that hold a tensor with a graph: by the name and the line that the user knows them by."""

from __future__ import annotations

import ast
import linecache
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import CO_OPTIMIZED
from itertools import islice
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from seismograd.places import is_users, parsed, shown

_MOST = 4_000
"""So many values are looked at."""

_MOST_ITEMS = 64
"""So many items of a list or dict."""

_DEPTH = 4

_PLAIN = (str, int, float, bytes, type(None), type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in the user's code: `total`, `metrics['loss']`, `meter.sum`, `model.rnn.hidden[0]`."""

    name: str
    code: CodeType
    """Where its first part is a local, or a global."""
    owner: type | None = None
    """The class of the object that it is an attribute of."""
    attribute: str | None = None
    """What the attribute is called there, with its index: `hidden[0]`."""

    @property
    def scope(self) -> str:
        return "global" if self.code.co_name == "<module>" else f"local of `{self.code.co_name}`"

    def line(self) -> tuple[str, int, str] | None:
        """File, line and source of the statement that gives it its next value."""
        if self.owner is not None and self.attribute is not None:
            for kind in self.owner.__mro__:
                for filename in sorted({code.co_filename for code in _codes(kind)}):
                    if is_users(filename) and (found := _assignment(filename, kind, f"self.{self.attribute}")):
                        return found
        return _assignment(self.code.co_filename, self.code, self.name)


def with_graph(frame: FrameType | None) -> Iterator[tuple[Variable, Tensor]]:
    """The variables of the user's frames from `frame` outwards that hold a tensor with a graph, and that tensor."""
    walk = _Walk()
    globals_seen: set[int] = set()
    while frame is not None:
        code = frame.f_code
        if is_users(code.co_filename):
            held = frame.f_locals
            yield from walk.through(dict(held), code)
            if code.co_flags & CO_OPTIMIZED and type(held) is dict:
                held.clear()  # a copy, which the frame would keep, and what is in it with it
            if id(frame.f_globals) not in globals_seen and held is not frame.f_globals:
                globals_seen.add(id(frame.f_globals))
                top = _module_code(code)
                yield from walk.through(frame.f_globals, top)
        frame = frame.f_back


def _module_code(code: CodeType) -> CodeType:
    return code.replace(co_name="<module>", co_firstlineno=1)


class _Walk:
    """Goes through what names lead to, breadth first, so that the shortest name of a tensor comes first."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._left = _MOST

    def through(self, names: Mapping[str, Any], code: CodeType) -> Iterator[tuple[Variable, Tensor]]:
        waiting: deque[tuple[Any, Variable, int]] = deque()
        for name, value in list(names.items()):
            if not name.startswith("__"):
                waiting.append((value, Variable(name, code), 0))
        while waiting and self._left > 0:
            value, variable, depth = waiting.popleft()
            if isinstance(value, _PLAIN):
                continue
            self._left -= 1
            if isinstance(value, Tensor):
                if value.grad_fn is not None:
                    yield variable, value
            elif depth < _DEPTH and id(value) not in self._seen:
                self._seen.add(id(value))
                waiting.extend((part, named, depth + 1) for part, named in _parts(value, variable))


def _parts(value: Any, variable: Variable) -> Iterator[tuple[Any, Variable]]:
    if isinstance(value, nn.Module):
        for path, module in value.named_modules():
            name = f"{variable.name}.{path}" if path else variable.name
            own = {**module.__dict__.get("_buffers", {}), **module.__dict__}
            for key, part in own.items():
                if not key.startswith("_") or isinstance(part, Tensor):
                    yield part, Variable(f"{name}.{key}", variable.code, type(module), key)
    elif isinstance(value, dict):
        for key, part in list(islice(dict.items(value), _MOST_ITEMS)):
            yield part, _item(variable, f"[{key!r}]" if isinstance(key, _PLAIN) else "[...]")
    elif isinstance(value, (list, tuple, deque)):
        length, items = _last_items(value)
        for at, part in enumerate(items, length - len(items)):
            yield part, _item(variable, f"[{at}]")
    elif _is_users_object(value):
        for key, part in list(vars(value).items()):
            yield part, Variable(f"{variable.name}.{key}", variable.code, type(value), key)


def _last_items(value: Any) -> tuple[int, Sequence[Any]]:
    """How long it is, and the last of its items; as lists do it: one of the user's kind may load."""
    if isinstance(value, list):
        return list.__len__(value), list.__getitem__(value, slice(-_MOST_ITEMS, None))
    if isinstance(value, tuple):
        return tuple.__len__(value), tuple.__getitem__(value, slice(-_MOST_ITEMS, None))
    last = list(islice(deque.__reversed__(value), _MOST_ITEMS))
    return deque.__len__(value), last[::-1]


def _item(variable: Variable, part: str) -> Variable:
    attribute = None if variable.attribute is None else variable.attribute + part
    return Variable(variable.name + part, variable.code, variable.owner, attribute)


def _is_users_object(value: Any) -> bool:
    """Whether it is an instance of a class that the user wrote, with attributes; a function's are nobody's state."""
    return type(getattr(value, "__dict__", None)) is dict and any(
        is_users(code.co_filename) for kind in type(value).__mro__[:-1] for code in _codes(kind)
    )


def _codes(kind: type) -> list[CodeType]:
    found = (getattr(each, "__code__", None) for each in vars(kind).values())
    return [code for code in found if isinstance(code, CodeType)]


def _assignment(filename: str, scope: CodeType | type, wanted: str) -> tuple[str, int, str] | None:
    """The statement within a function or class that assigns to `wanted`, best one that also uses it, in a loop."""
    tree = _tree(filename)
    if tree is None:
        return None
    best: tuple[int, int] | None = None
    for each in [node for node in ast.walk(tree) if _is_scope(node, scope)] or [tree]:
        for statement, in_loop in _statements(each, False):
            fits = _fits(statement, wanted)
            if fits:
                key = (2 * fits + in_loop, statement.lineno)
                best = max(best, key) if best is not None else key
    if best is None:
        return None
    return shown(filename), best[1], linecache.getline(filename, best[1]).strip()


def _is_scope(node: ast.AST, scope: CodeType | type) -> bool:
    if isinstance(scope, type):
        return isinstance(node, ast.ClassDef) and node.name == scope.__name__
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return node.name == scope.co_name and first == scope.co_firstlineno


def _fits(statement: ast.stmt, wanted: str) -> int:
    """0: it does not assign to it; 1: to what it is an item of; 2: to it; 3 and 4: and it uses it, too."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    value = getattr(statement, "value", None)
    names = {ast.unparse(each) for target in targets for each in _flat(target)}
    bases = [wanted]
    while bases[-1].endswith("]"):
        bases.append(bases[-1][: _opening(bases[-1])])
    for weight, base in ((2, bases[0]), *((1, each) for each in bases[1:])):
        if base in names or (weight == 1 and any(name.startswith(f"{base}[") for name in names)):
            used = isinstance(statement, ast.AugAssign) or (value is not None and _uses(value, base))
            return weight + 2 * used
    return 0


def _opening(path: str) -> int:
    depth = 0
    for at in range(len(path) - 1, -1, -1):
        depth += (path[at] == "]") - (path[at] == "[")
        if not depth:
            return at
    return 0


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _flat(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _uses(value: ast.expr, name: str) -> bool:
    return any(
        isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and ast.unparse(node) == name
        for node in ast.walk(value)
    )


def _statements(node: ast.AST, in_loop: bool) -> Iterator[tuple[ast.stmt, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, in_loop
        yield from _statements(child, in_loop or isinstance(child, (ast.For, ast.While, ast.AsyncFor)))


@lru_cache(maxsize=8)
def _tree(filename: str) -> ast.Module | None:
    try:
        return parsed(filename)
    except (SyntaxError, ValueError, RecursionError):
        return None
