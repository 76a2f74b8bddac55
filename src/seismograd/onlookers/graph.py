"""The autograd graph of one backward pass, as it stands before it runs: what was computed, from what, in which module.

It shows functional calls and modules alike, and costs the forward pass nothing. Nothing is kept alive: whoever gets a
`Graph` lets go of it, and of what `saved` gives, before the event is over.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

MOST_NODES = 20_000
"""A longer graph is not looked at. Torch frees nodes that Python has seen by recursion: 100,000 in a row overflow the
stack."""


@dataclass(slots=True)
class Span:
    """One call of a module in the forward pass: the numbers of the nodes that were made in it."""

    module: nn.Module
    name: str | None
    """Its path in the models under watch; `None` if it is of none."""
    first: int
    last: int
    """The number after the last node's."""
    depth: int
    """0 for the outermost call."""
    gave: tuple[int, ...] = ()
    """The numbers of the nodes that made what it returned."""
    output: weakref.ref[Tensor] | None = None
    """The first tensor of that."""
    caller: CodeType | None = None
    """The code that called it, of a call within another."""


@dataclass(slots=True)
class Node:
    """One op of the forward pass that has a derivative."""

    function: Any
    kind: str
    """`ReluBackward0`."""
    number: int
    """When it was made, of all nodes of its thread."""
    into: list[int] = field(default_factory=list)
    """The nodes that made its inputs, in the order of its arguments; -1 where an input has no gradient."""
    leaf: Tensor | None = None
    """For a leaf: the tensor that needs a gradient."""
    span: Span | None = None
    """The innermost call of a module that it was made in."""

    @property
    def op(self) -> str:
        """`aten.relu` for `ReluBackward0`."""
        return node_op(self.function)

    @property
    def name(self) -> str:
        """The kind without its tail: `Relu`."""
        return self.kind.rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what it made (the first output)."""
        metadata = self.function._input_metadata
        return tuple(int(size) for size in metadata[0].shape) if metadata else ()

    @property
    def dtype(self) -> torch.dtype | None:
        metadata = self.function._input_metadata
        return metadata[0].dtype if metadata else None

    def saved(self) -> dict[str, Tensor]:
        """What autograd keeps for it, by the names of its op: `result`, `self`. Nothing that would be recomputed."""
        return saved_by(self.function)

    @property
    def module(self) -> str | None:
        """The path of the module that it was made in."""
        return None if self.span is None else self.span.name


class Graph:
    """Everything that a backward pass from `roots` would go through; `nodes[:len(starts)]` need not be the roots."""

    def __init__(self, roots: Sequence[Any], spans: Sequence[Span] = ()) -> None:
        self.nodes: list[Node] = []
        self.complete = True
        """False where it is too long to be looked at; there are then no nodes."""
        self.spans = spans
        """The calls of modules since the last backward pass, in the order in which they began."""
        self._numbers: dict[Any, int] = {}
        self.starts: list[int] = [
            self._at(root.grad_fn) for root in roots if isinstance(root, Tensor) and root.grad_fn is not None
        ]
        """The nodes that made the roots."""
        at = 0
        while at < len(self.nodes):
            node = self.nodes[at]
            node.into = [-1 if other is None else self._at(other) for other, _ in node.function.next_functions]
            at += 1
            if at > MOST_NODES:
                self.nodes, self.starts, self.complete = [], [], False
                break
        self._users: list[list[int]] | None = None
        self._place(spans)

    def _at(self, function: Any) -> int:
        known = self._numbers.get(function)
        if known is None:
            known = self._numbers[function] = len(self.nodes)
            kind = function.name()
            leaf = function.variable if kind.endswith("AccumulateGrad") else None
            self.nodes.append(Node(function, kind, -1 if leaf is not None else function._sequence_nr(), leaf=leaf))
        return known

    def _place(self, spans: Sequence[Span]) -> None:
        """Gives each node the innermost span that it lies in."""
        if not spans:
            return
        edges: list[tuple[int, Span | None]] = []
        open_: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.first, span.depth)):
            while open_ and open_[-1].last <= span.first and open_[-1].depth >= span.depth:
                over = open_.pop()
                edges.append((over.last, open_[-1] if open_ else None))
            edges.append((span.first, span))
            open_.append(span)
        while open_:
            over = open_.pop()
            edges.append((over.last, open_[-1] if open_ else None))
        starts = [first for first, _ in edges]
        for node in self.nodes:
            if node.leaf is None:
                at = bisect_right(starts, node.number) - 1
                node.span = edges[at][1] if at >= 0 else None

    @property
    def leaves(self) -> Iterator[Tensor]:
        """The tensors that would get a gradient."""
        return (node.leaf for node in self.nodes if node.leaf is not None)

    def users(self, at: int) -> list[int]:
        """The nodes that use what this one made."""
        if self._users is None:
            self._users = [[] for _ in self.nodes]
            for number, node in enumerate(self.nodes):
                for other in node.into:
                    if other >= 0:
                        self._users[other].append(number)
        return self._users[at]


def node_op(function: Any) -> str:
    """`aten.sqrt` for a `SqrtBackward0`."""
    return op_of(str(function.name()))


def op_of(kind: str) -> str:
    """`aten.sqrt` for `"SqrtBackward0"`."""
    name = kind.rpartition("::")[2]
    stem = name.rstrip("0123456789").removesuffix("Backward")
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in stem).lstrip("_")
    for candidate in (snake, f"_{snake}", f"linalg_{snake.removeprefix('linalg_')}"):
        if hasattr(torch.ops.aten, candidate):
            return f"aten.{candidate}"
    return f"aten.{snake}"


_saved_names: dict[str, list[str]] = {}


def is_freed(function: Any) -> bool:
    """Whether a backward has let go of what autograd kept for this node; False where it kept nothing to see."""
    for name in _names_of_saved(function):
        try:
            if not hasattr(raw := getattr(function, name), "unpack_hook") or raw.unpack_hook is not None:
                continue
            getattr(function, name.replace("_raw", "", 1))
        except RuntimeError:
            return True
    return False


def _names_of_saved(function: Any) -> list[str]:
    kind = function.name()
    names = _saved_names.get(kind)
    if names is None:
        names = [name for name in dir(function) if name.startswith("_raw_saved_")]
        names = _saved_names[kind] = [] if "saved_tensors" in dir(function) else names
    return names


def saved_by(function: Any) -> dict[str, Tensor]:
    """The tensors that autograd keeps for this node, by the names of its op; none that would have to be recomputed."""
    names = _names_of_saved(function)
    found: dict[str, Tensor] = {}
    for name in names:
        try:
            raw = getattr(function, name)
            if isinstance(raw, (list, tuple)) or raw is None or raw.unpack_hook is not None:
                continue
            tensor = getattr(function, name.replace("_raw", "", 1))
        except (RuntimeError, AttributeError):
            continue
        if isinstance(tensor, Tensor):
            found[name.removeprefix("_raw_saved_")] = tensor.detach()
    return found
