"""Statements of the user's own loop, evaluated a second time: for values that were made without a graph.

Only what plainly has no effect but its value is evaluated: torch's functions, tensors' methods, modules, and functions
of the user's that are made of nothing else. Whether the value is the one that the loop got is for the caller to check.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seismograd.places import Spot, is_users, parsed

_DEEPEST = 4
"""So many functions of the user's may call each other."""

_PLAIN = frozenset(
    (
        *("abs", "all", "any", "bool", "dict", "enumerate", "float", "getattr", "hasattr", "int", "isinstance", "len"),
        *("list", "max", "min", "pow", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"),
    )
)
_FOUNDATION = ("torch", "math", "numpy", "operator", "einops")
_NEVER = frozenset(("backward", "step", "zero_grad", "save", "load", "manual_seed", "seed", "compile"))

_IN_PLACE = frozenset(("sort", "put", "resize"))
"""Methods that give a new tensor, but change a list or an array."""

_CHANGES = ("set_", "use_", "register_", "enable_")
"""How functions of torch begin that change its state."""

_trees: dict[str, ast.Module | None] = {}


@dataclass(frozen=True)
class Statement:
    """One statement as it stands in the source, and what is bound where it ran."""

    node: ast.stmt
    scope: ast.AST
    """The function, or the module, that it belongs to."""
    namespace: Mapping[str, Any]
    filename: str

    @property
    def expression(self) -> ast.expr | None:
        """What it evaluates; of `x.backward()` the `x`."""
        node = self.node
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return)):
            return node.value
        if isinstance(node, ast.Expr):
            call = node.value
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
                return call.func.value
            return call
        return None

    @property
    def targets(self) -> list[str]:
        """The names that it binds."""
        node = self.node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        return [name for target in targets if isinstance(target, ast.expr) for name in _bound(target)]

    def is_safe(self) -> bool:
        """Whether it can be evaluated again: nothing else happens by it, and it has not changed what it reads."""
        expression = self.expression
        if expression is None or names_in(expression) & set(self.targets):
            return False
        return _Safety(self.namespace).allows(expression, 0)

    def value(self) -> Any:
        """Its value, as of now."""
        expression = self.expression
        assert expression is not None
        code = compile(ast.Expression(expression), self.filename, "eval")
        return eval(code, dict(self.namespace))

    def before(self, name: str) -> Statement | None:
        """The last statement before this one, in the same scope, that binds the name by a plain assignment."""
        found: ast.stmt | None = None
        for node in _own_nodes(self.scope):
            if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With)):
                continue
            if node.lineno < self.node.lineno and (found is None or node.lineno > found.lineno) and _binds(node, name):
                found = node
        if not isinstance(found, (ast.Assign, ast.AnnAssign)):
            return None
        return Statement(found, self.scope, self.namespace, self.filename)


def statement_at(spots: Iterable[Spot]) -> Statement | None:
    """The statement of the deepest of these spots whose frame is still there."""
    frames: dict[int, FrameType] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.setdefault(id(frame.f_code), frame)
        frame = frame.f_back
    for spot in spots:
        live = frames.get(id(spot.code))
        if live is not None:
            return _statement(live, spot)
    return None


def _statement(frame: FrameType, spot: Spot) -> Statement | None:
    filename = spot.code.co_filename
    tree = _tree(filename)
    if tree is None:
        return None
    scope: ast.AST = tree
    found: ast.stmt | None = None
    line, column = spot.line, spot.position()[2] or 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or not _covers(node, line, column):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope = node  # walked breadth first: the innermost comes last
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)):
            found = node
    if found is None:
        return None
    return Statement(found, scope, {**frame.f_globals, **frame.f_locals}, filename)


def _covers(node: ast.stmt, line: int, column: int) -> bool:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= (line, column) <= end


def _tree(filename: str) -> ast.Module | None:
    if filename not in _trees:
        try:
            _trees[filename] = parsed(filename)
        except (SyntaxError, ValueError):
            _trees[filename] = None
    return _trees[filename]


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of functions and classes inside it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def _bound(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for item in target.elts for name in _bound(item)]
    return []


def _binds(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(name in _bound(target) for target in node.targets)
    if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For)):
        return name in _bound(node.target)
    if isinstance(node, ast.With):
        return any(item.optional_vars is not None and name in _bound(item.optional_vars) for item in node.items)
    return False


_UNKNOWN = object()


def _is_known_kind(meant: Any) -> bool:
    """Whether its operators, items and attributes run nobody's code but torch's and Python's."""
    if meant is _UNKNOWN or meant is None or isinstance(meant, _KINDS):
        return True
    if type(meant) in (list, tuple, dict, set, range):
        items = list(meant.values() if isinstance(meant, dict) else meant)[:64]
        return all(item is meant or _is_known_kind(item) for item in items)
    return isinstance(meant, Tensor) and (type(meant) in (Tensor, nn.Parameter))


_KINDS = (
    *(bool, int, float, complex, str, bytes, np.ndarray, np.generic, ModuleType, nn.Module, FunctionType, type),
    *(BuiltinFunctionType, torch.dtype, torch.device, np.ufunc),
)


class _Safety:
    """Whether code has no effect but its value, as far as can be told from its source and what its names mean."""

    def __init__(
        self, namespace: Mapping[str, Any], own: frozenset[str] = frozenset(), made: frozenset[str] = frozenset()
    ) -> None:
        self._namespace, self._own = namespace, own
        self._made = made
        """Those of its own names that stand for lists and dicts which it makes itself."""

    def allows(self, node: ast.AST, depth: int) -> bool:
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda)):
            return False
        if isinstance(node, ast.Name) and not _is_known_kind(self._meaning(node)):
            return False
        if isinstance(node, ast.Attribute) and not self._is_plain_attribute(node):
            return False
        if isinstance(node, ast.Subscript) and not _is_harmless(self._meaning(node.value)):
            return False
        if isinstance(node, ast.Call) and not self._may_call(node, depth):
            return False
        return all(self.allows(child, depth) for child in ast.iter_child_nodes(node))

    def _is_plain_attribute(self, node: ast.Attribute) -> bool:
        """Whether to look at it runs no code of the user's: no property, nothing behind an unknown object."""
        owner = self._meaning(node.value)
        if owner is _UNKNOWN:  # the value of an expression, all of whose names are known kinds
            return not isinstance(node.value, ast.Attribute) or hasattr(Tensor, node.attr)
        if isinstance(owner, nn.Module):
            found = inspect.getattr_static(owner, node.attr, None)
            held = getattr(owner, node.attr, None) if not isinstance(found, property) else None
            return held is not None and _is_known_kind(held)
        return _is_known_kind(owner) and not isinstance(inspect.getattr_static(owner, node.attr, None), property)

    def _may_call(self, call: ast.Call, depth: int) -> bool:
        function = call.func
        meant = self._meaning(function)
        if meant is _UNKNOWN:
            owner = self._meaning(function.value) if isinstance(function, ast.Attribute) else None
            if not isinstance(function, ast.Attribute) or not _is_harmless(owner):
                return False
            name = function.attr
            if isinstance(owner, (list, np.ndarray)) and name in _IN_PLACE:
                return False
            if isinstance(function.value, ast.Name) and function.value.id in self._made:
                return name not in _NEVER  # a list of the function's own
            changes = name in _NEVER or name.endswith("_") or name.startswith(_CHANGES)
            return not changes and hasattr(Tensor, name)
        if isinstance(meant, nn.Module):
            return True
        if isinstance(function, ast.Attribute) and (function.attr in _NEVER or function.attr.endswith("_")):
            return False
        name = getattr(meant, "__name__", "")
        if getattr(builtins, name, None) is meant:
            return name in _PLAIN
        if isinstance(meant, MethodType):
            return False
        plain = inspect.unwrap(meant) if isinstance(meant, FunctionType) else meant
        if isinstance(plain, FunctionType) and is_users(plain.__code__.co_filename):
            return depth < _DEEPEST and _is_safe_function(plain, self._passed(plain, call), depth + 1)
        home = getattr(meant, "__module__", None) or getattr(getattr(meant, "__objclass__", None), "__module__", "")
        if ".random" in str(home) or ".distributed" in str(home) or name.startswith(_CHANGES):
            return False
        if isinstance(meant, BuiltinFunctionType) and isinstance(meant.__self__, Tensor):
            return True
        return str(home).partition(".")[0] in _FOUNDATION or isinstance(meant, np.ufunc)

    def _passed(self, function: FunctionType, call: ast.Call) -> dict[str, Any]:
        """What the arguments of a call stand for, by the names of the parameters, where that is known."""
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = [*zip(names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
        meanings = {name: self._meaning(value) for name, value in given if name is not None}
        return {name: meaning for name, meaning in meanings.items() if meaning is not _UNKNOWN}

    def _meaning(self, function: ast.expr) -> Any:
        """What a name, or an attribute of a module or class, stands for."""
        if isinstance(function, ast.Name):
            if function.id in self._own:
                return _UNKNOWN
            return self._namespace.get(function.id, getattr(builtins, function.id, _UNKNOWN))
        if isinstance(function, ast.Attribute):
            owner = self._meaning(function.value)
            if isinstance(owner, (ModuleType, type, Tensor, nn.Module)):
                return getattr(owner, function.attr, _UNKNOWN)
        return _UNKNOWN


_STATEMENTS = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.If, ast.For, ast.While, ast.With),
    *(ast.Pass, ast.Break, ast.Continue, ast.Assert, ast.Raise),
)


_DISPLAYS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)


def _is_harmless(meant: Any) -> bool:
    """Whether methods and subscripts of it are no code of the user's; what is not known will be a tensor."""
    return meant is _UNKNOWN or isinstance(
        meant, (Tensor, nn.Module, ModuleType, type, int, float, str, tuple, list, dict, np.ndarray, np.generic)
    )


_MODES = ("no_grad()", "no_grad", "enable_grad()", "inference_mode()", "inference_mode")
"""Decorators that only change how torch computes."""


def _is_safe_function(function: FunctionType, passed: Mapping[str, Any], depth: int) -> bool:
    tree = _tree(function.__code__.co_filename)
    if tree is None:
        return False
    line = function.__code__.co_firstlineno
    body = next(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and min([node.lineno, *(each.lineno for each in node.decorator_list)]) == line
        ),
        None,
    )
    if body is None or any(ast.unparse(each).rpartition(".")[2] not in _MODES for each in body.decorator_list):
        return False
    own = {argument.arg for argument in (*body.args.posonlyargs, *body.args.args, *body.args.kwonlyargs)}
    assigned: set[str] = set()
    made: set[str] = set()
    for node in _own_nodes(body):
        if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
            return False
        for target in _targets(node):
            names = _bound(target)
            if not names and not (isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)):
                return False
            if isinstance(target, ast.Subscript) and getattr(target.value, "id", None) not in assigned:
                return False
            if isinstance(node, ast.AugAssign) and not own.isdisjoint(names):
                return False  # it may change what it was given
            assigned.update(names)
            if isinstance(node, ast.Assign):
                made.update(_displayed(target, node.value))
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    closure = dict(zip(function.__code__.co_freevars, cells, strict=True))
    known = {**function.__globals__, **closure, **{name: passed[name] for name in passed.keys() - assigned}}
    safety = _Safety(known, frozenset((own - passed.keys()) | assigned), frozenset(made - own))
    return all(safety.allows(node, depth) for node in body.body)


def _displayed(target: ast.expr, value: ast.expr) -> list[str]:
    """The names that are bound to a list or dict that stands there: `found, total = [], 0`."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [name for pair in zip(target.elts, value.elts, strict=True) for name in _displayed(*pair)]
    return _bound(target) if isinstance(target, ast.Name) and isinstance(value, _DISPLAYS) else []


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return list(node.targets)
    if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For)):
        return [node.target]
    return []


def tensors_bound(namespace: Mapping[str, Any], names: Iterable[str]) -> dict[str, Tensor]:
    """The tensors that these names stand for."""
    return {name: value for name in names if isinstance(value := namespace.get(name), Tensor)}


def names_in(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
