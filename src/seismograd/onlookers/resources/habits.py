"""What the source of a training step does at every step that costs time for nothing, by its syntax tree."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seismograd.places import Spot, parsed

_WAITS = frozenset({"item", "cpu", "numpy", "tolist", "synchronize", "empty_cache"})
_CASTS = frozenset({"float", "int", "bool", "print"})
_MAKES = frozenset(
    {"zeros", "ones", "full", "rand", "randn", "randint", "arange", "linspace", "eye", "tensor", "empty", "randperm"}
)
_MOVES = frozenset({"to", "cuda"})
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Habit:
    """A call that is made at every step, or many times in each."""

    kind: str
    """`sync`: waits for the device; `elsewhere`: a tensor made on the CPU and moved from there."""
    name: str
    file: str
    line: int
    code: str
    inner: bool
    """Whether it stands in a loop inside the step."""


def habits(spots: Sequence[Spot]) -> list[Habit]:
    """What the code around these spots, the user's frames at `optimizer.step()`, does at every step; the deepest first.

    Functions that they stand in belong to the step, up to the loop that makes the steps. What stands under a condition
    is not done at every step, and left out.
    """
    found: list[Habit] = []
    for spot in spots:
        lines = linecache.getlines(spot.code.co_filename)
        try:
            tree = parsed(spot.code.co_filename)
        except (SyntaxError, ValueError):  # no source, or that of a notebook with magic in it
            break
        around = _around(tree, spot.line)
        loop = next((node for node in around if isinstance(node, _LOOPS)), None)
        whole = loop or next((node for node in around if isinstance(node, _FUNCTIONS)), None)
        if whole is None:
            break
        for call, inner in _calls(whole.body if not isinstance(whole, ast.Lambda) else [], False):
            habit = _habit(call)
            if habit is not None:
                code = lines[call.lineno - 1].strip() if call.lineno <= len(lines) else ""
                found.append(Habit(*habit, spot.file, call.lineno, code, inner))
        if loop is not None:
            break
    return found


def _around(tree: ast.AST, line: int) -> list[ast.AST]:
    """The loops and functions that a line stands in, the innermost first; not beyond the innermost function."""
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (*_LOOPS, *_FUNCTIONS)) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    nodes.sort(key=lambda node: node.lineno, reverse=True)
    functions = [at for at, node in enumerate(nodes) if isinstance(node, _FUNCTIONS)]
    return list(nodes[: functions[0] + 1] if functions else nodes)


def _calls(body: Sequence[ast.AST], inner: bool) -> Iterator[tuple[ast.Call, bool]]:
    """Every call that is made unconditionally, and whether it stands in a loop."""
    for node in body:
        if isinstance(node, (ast.If, ast.IfExp, ast.Try, ast.With, *_FUNCTIONS)):
            if isinstance(node, (ast.With, ast.Try)):
                yield from _calls(node.body, inner)
            continue
        if isinstance(node, ast.Call):
            yield node, inner
        deeper = inner or isinstance(node, (*_LOOPS, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp))
        yield from _calls(list(ast.iter_child_nodes(node)), deeper)


def _habit(call: ast.Call) -> tuple[str, str] | None:
    function = call.func
    if isinstance(function, ast.Attribute):
        made = function.value
        if function.attr in _MOVES and isinstance(made, ast.Call) and _creates(made):
            return "elsewhere", f"torch.{made.func.attr}" if isinstance(made.func, ast.Attribute) else "torch"
        if function.attr in _WAITS:
            return "sync", f".{function.attr}()"
    elif isinstance(function, ast.Name) and function.id in _CASTS and any(map(_is_loss, _parts(call))):
        return "sync", f"{function.id}()"
    return None


def _creates(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _MAKES
        and isinstance(function.value, ast.Name)
        and function.value.id == "torch"
        and not any(keyword.arg == "device" for keyword in call.keywords)
    )


def _parts(call: ast.Call) -> Iterator[ast.AST]:
    """What is handed over, and what stands in f-strings of it."""
    for argument in call.args:
        yield argument
        if isinstance(argument, ast.JoinedStr):
            yield from argument.values


def _is_loss(node: ast.AST) -> bool:
    """Whether it is a name that people give to what lies on the device: `loss`."""
    value = node.value if isinstance(node, ast.FormattedValue) else node
    return isinstance(value, ast.Name) and "loss" in value.id.lower()
