"""What lies between the modules and the loss: the autograd graph of the user's own loop, a handful of nodes.

Nobody can run that code again. But its nodes know their line, autograd keeps most of what went into them, and hooks
keep the gradients that pass: that is enough to compute the values anew, op by op, when they are wanted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from seismograd.onlookers.graph import node_op, saved_by
from seismograd.places import Spot
from seismograd.replay.lines import MOST_NODES, Line


@dataclass(slots=True)
class Node:
    """One op of the user's loop."""

    kind: str
    op: str
    line: Line
    saved: dict[str, Tensor]
    scalars: dict[str, Any]
    edges: list[Edge]
    """Where its inputs come from."""
    sequence: int = 0
    """When it was made, of all nodes."""
    order: int = -1
    """Its turn in backward."""
    derives: str | None = None
    """The forward op whose derivative it is, if a backward pass made it."""
    arrived: tuple[Tensor | None, ...] = ()
    left: tuple[Tensor | None, ...] = ()

    @property
    def spot(self) -> Spot | None:
        return self.line.spots[0] if self.line.spots else None


class _Passing:
    """A hook that keeps what passes a node in backward. Held by the user's graph, it holds nothing itself."""

    __slots__ = ("_glue", "_number")

    def __init__(self, glue: Glue) -> None:
        self._glue, self._number = weakref.ref(glue), len(glue.nodes)

    def __call__(self, left: Sequence[Tensor | None], arrived: Sequence[Tensor | None]) -> None:
        glue = self._glue()
        if glue is None:
            return
        node = glue.nodes[self._number]
        node.order = glue.turns
        glue.turns += 1
        if glue.afford(*left):
            node.left, node.arrived = tuple(left), tuple(arrived)


Edge = tuple[str, Any]
"""Where a value comes from: `("node", number)`, `("call", (call, output))`, `("leaf", tensor)` or `("none", None)`."""


class Glue:
    """The graph of one backward pass from its roots down to the outputs of the modules that were called, and on from
    what went into those.

    Under `mark` a node that made a module's output knows the call, and its outputs by number."""

    def __init__(self, roots: Sequence[Any], mark: str = "", afford: Callable[[int], bool] = lambda size: True) -> None:
        self.nodes: list[Node] = []
        self.losses: list[Tensor] = []
        self.starts: list[Edge] = []
        """Where the losses come from."""
        self.into: dict[Any, list[tuple[Tensor, Edge]]] = {}
        """For each call that it reaches, in the order of backward: inputs with a gradient, and where they come from."""
        self.complete = True
        """False where the graph was too long to be looked at."""
        self.turns = 0
        self._mark, self._afford = mark, afford
        self._found: list[Any] = []
        self._numbers: dict[Any, int] = {}
        for root in roots:
            if isinstance(root, Tensor):
                self.losses.append(root.detach())
                self.starts.append(self._edge(root.grad_fn, root.output_nr))
        edges: list[list[Edge]] = []
        while len(edges) < len(self._found) and self.complete:
            function = self._found[len(edges)]
            edges.append([self._edge(*other) for other in function.next_functions])
        if self.complete:
            for function, into in zip(self._found, edges, strict=True):
                self._add(function, into)
        self._found, self._numbers = [], {}  # the graph is the user's to free

    def _edge(self, function: Any, number: int) -> Edge:
        if function is None:
            return "none", None
        mark = function.metadata.get(self._mark)
        if mark is not None:
            call, outputs = mark[0](), mark[1]
            if call is None:
                return "none", None  # of a step that is over
            if call not in self.into:
                given = self.into[call] = []
                for tensor, _ in call.versions:
                    if tensor.grad_fn is not None:
                        given.append((tensor.detach(), self._edge(tensor.grad_fn, tensor.output_nr)))
            return "call", (call, outputs[number]() if number in outputs else None)
        leaf = getattr(function, "variable", None)
        if leaf is not None:
            return "leaf", leaf.detach()
        if function not in self._numbers:
            if len(self._found) >= MOST_NODES:
                self.complete = False
                return "none", None
            self._numbers[function] = len(self._found)
            self._found.append(function)
        return "node", self._numbers[function]

    def _add(self, function: Any, into: list[Edge]) -> None:
        told = function.metadata
        saved, line = saved_by(function), told.get("traceback_")
        line = line if isinstance(line, Line) else Line()
        parent = told.get("parent_") if line.twice else None
        if parent is not None and isinstance(of_forward := parent.metadata.get("traceback_"), Line):
            line = Line(of_forward.spots, twice=True)  # the op whose derivative it is
        node = Node(
            function.name(),
            node_op(function),
            line,
            saved if self.afford(*saved.values()) else {},
            _scalars(function),
            into,
            function._sequence_nr(),
        )
        if parent is not None:
            node.derives = node_op(parent)
        function.register_hook(_Passing(self))
        self.nodes.append(node)

    def afford(self, *tensors: Tensor | None) -> bool:
        return self._afford(sum(one.numel() * one.element_size() for one in tensors if one is not None))


_scalar_names: dict[str, list[str]] = {}


def _scalars(function: Any) -> dict[str, Any]:
    """The numbers that autograd keeps for a node: `dim`, `keepdim`, `reduction`."""
    kind = function.name()
    names = _scalar_names.get(kind)
    if names is None:
        everything = dir(function)
        names = _scalar_names[kind] = [
            name for name in everything if name.startswith("_saved_") and f"_raw{name}" not in everything
        ]
    found: dict[str, Any] = {}
    for name in names:
        try:
            value = getattr(function, name)
        except (RuntimeError, AttributeError):
            continue
        value = _signed(value)
        if value is None or isinstance(value, (bool, int, float, str, list, tuple)):
            found[name.removeprefix("_saved_")] = value
    return found


def _signed(value: Any) -> Any:
    """A number as it was meant: autograd tells -1 unsigned."""
    if isinstance(value, (list, tuple)):
        return type(value)(_signed(item) for item in value)
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value
