"""What the user's source says of a container: where it grows, whether it is ever emptied or read, what guards it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType

from seismograd.places import parsed

_GROWS = frozenset(["append", "appendleft", "add", "extend", "insert", "update", "setdefault", "put", "push", "record"])
_SHRINKS = frozenset(["clear", "pop", "popleft", "popitem", "remove", "discard"])
_MAKERS = frozenset(["list", "dict", "set", "deque", "defaultdict", "OrderedDict"])
_JOINS = frozenset(["cat", "concat", "concatenate", "append", "hstack", "vstack", "stack"])
_LONGEST = 2_000_000
"""Characters of a file that is still looked at."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of an expression for a container: `cache` of `self.cache`, with the key of `logs["loss"]`."""

    name: str
    key: str | None = None
    attribute: bool = False
    of_self: bool = field(default=False, compare=False)
    """Whether it is written as an attribute of `self` or `cls`."""

    def fits(self, other: Tail) -> bool:
        if self.name != other.name or self.attribute != other.attribute:
            return False
        return self.key is None or other.key is None or self.key == other.key


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the source that does something to a container."""

    tail: Tail
    how: str
    """`append`, `[]=`, `+=`, `=` (grows); `clear`, `pop`, `del`, `new` (shrinks)."""
    file: str
    line: int
    function: str
    """The functions around it, dotted; empty at the module's level."""
    owner: str
    """The class around it."""
    loops: tuple[int, ...]
    """The lines of the loops around it, in its function, outermost first."""
    guarded: bool = False
    """Whether it stands below a condition that may end its growth: on its length, on what is in it, on a bound."""
    value: str = ""
    """What is put in, as it is written."""

    @property
    def code(self) -> str | None:
        return linecache.getline(self.file, self.line).strip() or None


@dataclass(slots=True)
class Source:
    """Everything about containers in one file."""

    grows: list[Site] = field(default_factory=list)
    shrinks: list[Site] = field(default_factory=list)
    made: list[Site] = field(default_factory=list)
    reads: list[Site] = field(default_factory=list)
    """Where something is used for more than putting something in."""
    hooks: list[Site] = field(default_factory=list)
    threads: list[Site] = field(default_factory=list)
    loops: list[tuple[int, int]] = field(default_factory=list)
    """First and last lines of the bodies of all loops."""
    functions: list[tuple[int, int, int]] = field(default_factory=list)
    """First line with decorators, of the `def`, and last."""


@lru_cache(maxsize=32)
def _read(file: str, size: int) -> Source:
    source = Source()
    try:
        tree = parsed(file)
    except (SyntaxError, ValueError, RecursionError):
        return source
    _Reader(file, source).visit(tree)
    return source


def source_of(file: str) -> Source:
    """What a file says; nothing if there is no source of it."""
    size = sum(map(len, linecache.getlines(file)))
    return _read(file, size) if 0 < size < _LONGEST else Source()


def in_loop(frame: FrameType) -> bool:
    """Whether the line that a frame is at lies in a loop of its own function."""
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    source = source_of(frame.f_code.co_filename)
    last = next((last for start, head, last in source.functions if first in (start, head)), None)
    if last is None and first > 1:
        return False
    return any(
        start <= line <= end and (last is None or first < start <= last) and not _in_inner(source, first, line)
        for start, end in source.loops
    )


def _in_inner(source: Source, first: int, line: int) -> bool:
    """Whether the line belongs to a function that is written inside of this one."""
    return any(first < head <= line <= last for _, head, last in source.functions)


class _Reader(ast.NodeVisitor):
    def __init__(self, file: str, source: Source) -> None:
        self._file, self._source = file, source
        self._functions: list[str] = []
        self._classes: list[str] = []
        self._loops: list[int] = []
        self._tests: list[ast.expr] = []
        self._written: set[int] = set()  # ids of the expressions that something is put into
        self._imported: set[str] = set()

    # -- around --------------------------------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        self._source.functions.append((start, node.lineno, node.end_lineno or node.lineno))
        for each in (*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(each)
        loops, tests, self._loops, self._tests = self._loops, self._tests, [], []
        self._functions.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()
        self._loops, self._tests = loops, tests

    visit_FunctionDef = _function  # noqa: N815
    visit_AsyncFunctionDef = _function  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._classes.append(node.name)
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()
        self._classes.pop()

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        for each in (node.iter, node.target) if isinstance(node, (ast.For, ast.AsyncFor)) else (node.test,):
            self.visit(each)
        last = node.body[-1]
        self._source.loops.append((node.lineno, last.end_lineno or last.lineno))
        self._loops.append(node.lineno)
        for statement in node.body:
            self.visit(statement)
        self._loops.pop()
        for statement in node.orelse:
            self.visit(statement)

    visit_For = _loop  # noqa: N815
    visit_AsyncFor = _loop  # noqa: N815
    visit_While = _loop  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._tests.append(node.test)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)
        self._tests.pop()

    def visit_Import(self, node: ast.Import) -> None:
        self._imported.update((each.asname or each.name).partition(".")[0] for each in node.names)

    # -- what is done --------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Attribute):
            name, receiver = called.attr, called.value
            tail = tail_of(receiver)
            if name.startswith("register_") and name.endswith("hook"):
                self._add(self._source.hooks, Tail(name), name, node, node.args)
            elif tail is not None and name in _GROWS:
                self._add(self._source.grows, tail, name, node, node.args[-1:], receiver)
            elif tail is not None and name in _SHRINKS:
                self._add(self._source.shrinks, tail, name, node, (), receiver)
        if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in ("Thread", "Timer"):
            self._add(self._source.threads, Tail("threads"), "Thread", node, ())
        if isinstance(called, ast.Name) and called.id == "len":
            self._written.update(id(each) for each in node.args)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        tail = tail_of(node.target)
        if tail is not None and isinstance(node.op, (ast.Add, ast.BitOr)):
            self._add(self._source.grows, tail, "+=", node, (node.value,), node.target)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assigned(target, node.value, node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned(node.target, node.value, node)
        self.generic_visit(node)

    def _assigned(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for each, inner in zip(target.elts, values, strict=False):
                self._assigned(each, inner, node)
            return
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            tail = tail_of(target.value)
            if tail is not None:
                self._add(self._source.grows, tail, "[]=", node, (value,), target.value)
        tail = tail_of(target)
        if tail is None:
            return
        itself = any(tail_of(each) == tail for each in ast.walk(value) if isinstance(each, ast.expr))
        if itself and _joins(value):
            self._add(self._source.grows, tail, "=", node, (value,), target)
            self._written.update(id(each) for each in ast.walk(value) if isinstance(each, ast.expr))
        elif itself and not isinstance(target, ast.Subscript):
            self._add(self._source.shrinks, tail, "new", node, (), target)
        elif _makes(value):
            self._add(self._source.made, tail, "new", node, (), target)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            tail = tail_of(target.value if isinstance(target, ast.Subscript) else target)
            if tail is not None:
                self._add(self._source.shrinks, tail, "del", node, (), target)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and id(node) not in self._written:
            self._add(self._source.reads, Tail(node.id), "read", node, ())

    def visit_Attribute(self, node: ast.Attribute) -> None:
        imported = isinstance(node.value, ast.Name) and node.value.id in self._imported  # `functools.cache`
        if isinstance(node.ctx, ast.Load) and id(node) not in self._written and not imported:
            self._add(self._source.reads, tail_of(node) or Tail(node.attr, attribute=True), "read", node, ())
        self.generic_visit(node)

    def _add(  # noqa: PLR0917
        self,
        into: list[Site],
        tail: Tail,
        how: str,
        node: ast.AST,
        values: Iterable[ast.expr],
        receiver: ast.expr | None = None,
    ) -> None:
        if receiver is not None:
            self._written.add(id(receiver))
            if isinstance(receiver, ast.Subscript):
                self._written.add(id(receiver.value))
        value = ", ".join(ast.unparse(each) for each in values)
        into.append(
            Site(
                tail,
                how,
                self._file,
                getattr(node, "lineno", 0),
                ".".join(self._functions),
                self._classes[-1] if self._classes else "",
                tuple(self._loops),
                any(_guards(test, tail.name) for test in self._tests),
                value if len(value) <= 60 else "",
            )
        )


def tail_of(node: ast.expr) -> Tail | None:
    if isinstance(node, ast.Name):
        return Tail(node.id)
    if isinstance(node, ast.Attribute):
        return Tail(node.attr, attribute=True, of_self=_is_self(node.value))
    if isinstance(node, ast.Subscript):
        base = tail_of(node.value)
        if base is None:
            return None
        key = repr(node.slice.value) if isinstance(node.slice, ast.Constant) else None
        return Tail(base.name, key if base.key is None else None, base.attribute, base.of_self)
    return None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _guards(test: ast.expr, name: str) -> bool:
    """Whether a condition may come to an end: it is about the container, or about what is less or more than a bound."""
    for each in ast.walk(test):
        if isinstance(each, ast.Name) and each.id == name:
            return True
        if isinstance(each, ast.Attribute) and each.attr == name:
            return True
        if isinstance(each, ast.Compare) and any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in each.ops):
            return True
    return False


def _makes(value: ast.expr) -> bool:
    """Whether this is a new, empty or fresh container."""
    if isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)):
        return True
    name = value.func if isinstance(value, ast.Call) else None
    return (name.id if isinstance(name, ast.Name) else getattr(name, "attr", "")) in _MAKERS or (
        isinstance(value, ast.Constant) and value.value is None
    )


def _joins(value: ast.expr) -> bool:
    """Whether a container is made from itself and more: `xs + [x]`, `torch.cat([xs, x])`."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, (ast.Add, ast.BitOr))
    if isinstance(value, ast.Call):
        name = value.func
        return (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) in _JOINS
    return isinstance(value, (ast.List, ast.Tuple)) and any(isinstance(each, ast.Starred) for each in value.elts)


def growth(sites: Iterable[Site], kind: str) -> Iterator[Site]:
    """Those that can make a container of this kind longer."""
    fit = {
        "list": {"append", "extend", "insert", "+=", "="},
        "deque": {"append", "appendleft", "extend", "insert", "+="},
        "set": {"add", "update", "+="},
        "dict": {"[]=", "update", "setdefault", "+=", "="},
        "tensor": {"="},
        "array": {"="},
    }.get(kind)
    return (site for site in sites if fit is None or site.how in fit)
