"""Computes the values of a loop's own graph anew, from what autograd kept, and finds the op that went bad."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seismograd.replay.glue import Edge, Glue, Node
from seismograd.replay.numbers import is_bad

_NO_GRADIENT = frozenset(
    ("target", "weight", "mask", "index", "indices", "condition", "pos_weight", "boundaries", "total_weight")
)
"""Tensor arguments that have no edge in the graph of most ops."""


_SHIFTS = ("aten.add", "aten.sub", "aten.rsub")


@dataclass(slots=True)
class Given:
    """An input of a node: its value where it is known, and where it comes from."""

    name: str
    value: Tensor | None
    edge: Edge


class Values:
    """The value of every node of a `Glue`, as far as it can be known."""

    def __init__(self, glue: Glue) -> None:
        self._glue = glue
        self._known: dict[int, Tensor | None] = {}
        self._consumed: dict[int, Tensor] = {}
        self._doubtful: set[int] = set()  # computed with a constant that nobody kept
        for node in glue.nodes:
            for name, edge in _arguments(node):
                if edge[0] == "node" and name in node.saved:
                    self._consumed.setdefault(edge[1], node.saved[name])
        for given in glue.into.values():
            for tensor, edge in given:
                if edge[0] == "node":
                    self._consumed.setdefault(edge[1], tensor)
        for loss, edge in zip(glue.losses, glue.starts, strict=True):
            if edge[0] == "node":
                self._consumed[edge[1]] = loss

    def of(self, edge: Edge) -> Tensor | None:
        kind, what = edge
        if kind == "leaf":
            return what  # type: ignore[no-any-return]
        if kind == "call":
            return None if what[1] is None else what[1].tensor
        if kind == "node":
            return self._of_node(what)
        return None

    def _of_node(self, number: int) -> Tensor | None:
        if number in self._consumed:
            return self._consumed[number]
        if number not in self._known:
            self._known[number] = None  # a graph has no circles, but a limit costs nothing
            node = self._glue.nodes[number]
            self._known[number] = node.saved["result"] if "result" in node.saved else self._computed(node)
            lacks = node.op in _SHIFTS and ("none", None) in node.edges
            if "result" not in node.saved and (lacks or any(self._is_doubtful(one) for one in self.given(node))):
                self._doubtful.add(number)
        return self._known[number]

    def _is_doubtful(self, given: Given) -> bool:
        kind, what = given.edge
        return kind == "node" and what in self._doubtful and what not in self._consumed

    def given(self, node: Node) -> list[Given]:
        """What went into the op."""
        found = []
        for name, edge in _arguments(node):
            value = node.saved[name] if name in node.saved else self.of(edge)
            found.append(Given(name, value, edge))
        return found

    def certain(self, node: Node) -> list[tuple[str, Tensor]]:
        """What went into the op, as far as no constant had to be guessed for it."""
        found = [
            (one.name, one.value) for one in self.given(node) if one.value is not None and not self._is_doubtful(one)
        ]
        if not found and node.op == "aten.sqrt" and "result" in node.saved:  # which keeps what it made, not what it got
            found = [("self", node.saved["result"].square())]
        return found

    def again(self, number: int, **changed: Any) -> Tensor | None:
        """The value of a node's op with other arguments: `reduction=0`."""
        node = self._glue.nodes[number]
        return self._computed(replace(node, scalars={**node.scalars, **changed}))

    def _computed(self, node: Node) -> Tensor | None:
        """The op, run again."""
        packet = getattr(torch.ops.aten, node.op.partition(".")[2], None)
        if packet is None:
            return None
        given = {one.name: one.value for one in self.given(node) if one.value is not None}
        if node.op in _SHIFTS and len(given) == 1 and ("none", None) in node.edges:
            (known,) = given.values()  # a constant that nobody kept: most are finite
            given = {"self": known, "other": torch.zeros((), dtype=known.dtype, device=known.device)}
        functions = [getattr(packet, overload) for overload in packet.overloads()]
        told = set(node.scalars)  # the one that takes most of what is known: `mean` over a dimension, not over all
        functions.sort(key=lambda each: -len(told & {argument.name for argument in each._schema.arguments}))
        for function in functions:
            arguments = _filled(function._schema, given, node.scalars)
            if arguments is None:
                continue
            try:
                with torch.no_grad():
                    result = function(*arguments[0], **arguments[1])
            except (RuntimeError, TypeError, IndexError, NotImplementedError):
                continue
            if isinstance(result, tuple) and result:
                result = result[0]
            return result if isinstance(result, Tensor) else None
        return None

    # -- where it went bad ---------------------------------------------------------------------------------------

    def culprit(self, edge: Edge) -> Culprit | None:
        """Walks back from a bad value to the node that made it out of finite ones, or to what brought it in.

        `None` if the value is not known to be bad.
        """
        value = self.of(edge)
        if value is None or not is_bad(value):
            return None
        found: list[Culprit] = []
        waiting, seen = [edge], set[int]()
        while waiting:
            at = waiting.pop()
            if at[0] != "node":
                found.append(Culprit(at))
                continue
            if at[1] in seen:
                continue
            seen.add(at[1])
            node = self._glue.nodes[at[1]]
            given = self.given(node)
            bad = [one for one in given if one.value is not None and is_bad(one.value)]
            further = [one.edge for one in bad if one.edge[0] != "none"]
            if not further and bad:
                found.append(Culprit(at, bad[0]))
            elif not further:
                unknown = [one.edge for one in given if one.value is None and one.edge[0] != "none"]
                further = [one for each in unknown if (one := self._beyond(each)) is not None]
                if not further:
                    further = self._doubted(node, given)
                if not further:
                    doubtful = node.op in _SHIFTS and ("none", None) in node.edges
                    unsure = unknown or doubtful or any(self._is_doubtful(one) for one in given)
                    found.append(Culprit(at, sure=not unsure))
            waiting += further
        return min(found, key=self._turn, default=None)

    def _doubted(self, node: Node, given: list[Given]) -> list[Edge]:
        """Inputs computed without a constant that nobody kept, if the op makes nothing bad of them as they seem."""
        doubtful = [one.edge for one in given if self._is_doubtful(one)]
        if not doubtful:
            return []
        result = self._computed(node)
        return [] if result is None or is_bad(result) else doubtful

    def _turn(self, culprit: Culprit) -> float:
        """When it ran; what comes from a call or a leaf was looked at before, and comes last."""
        kind, what = culprit.edge
        return self._glue.nodes[what].sequence if kind == "node" else math.inf

    def _beyond(self, edge: Edge) -> Edge | None:
        """The nearest bad value behind one that is not known, or the nearest op that got one from outside."""
        waiting, seen = [edge], 0
        while waiting and seen < 100:
            one = waiting.pop(0)
            seen += 1
            value = self.of(one)
            if value is not None:
                if is_bad(value):
                    return one
                continue
            if one[0] == "node":
                node = self._glue.nodes[one[1]]
                if any(given.value is not None and is_bad(given.value) for given in self.given(node)):
                    return one
                waiting += node.edges
        return None


@dataclass(slots=True)
class Culprit:
    """Where a bad value comes from."""

    edge: Edge
    brought: Given | None = None
    """The input that was bad when it came, though nothing in the graph made it."""
    sure: bool = True
    """Whether everything that went into it is known to be finite."""


def _arguments(node: Node) -> list[tuple[str, Edge]]:
    """The tensor arguments of a node's op, by name, with the edges they come from."""
    packet = getattr(torch.ops.aten, node.op.partition(".")[2], None)
    if packet is None:
        return [(f"input{at}", edge) for at, edge in enumerate(node.edges)]
    best: list[tuple[str, Edge]] = []
    for overload in packet.overloads():
        schema = getattr(packet, overload)._schema
        if schema.is_mutable:
            continue
        names = [argument.name for argument in schema.arguments if "Tensor" in str(argument.type)]
        if any("List" in str(argument.type) and "Tensor" in str(argument.type) for argument in schema.arguments):
            return [(f"{names[0]}[{at}]", edge) for at, edge in enumerate(node.edges)]
        with_edges = names if len(names) == len(node.edges) else [n for n in names if n not in _NO_GRADIENT]
        paired: list[tuple[str, Edge]] = list(zip(with_edges, node.edges, strict=False))
        rest = [name for name in names if name not in dict(paired) and name in node.saved]
        paired += [(name, ("none", None)) for name in rest]
        if len(paired) > len(best):
            best = paired
    return best or [(f"input{at}", edge) for at, edge in enumerate(node.edges)]


def _filled(schema: Any, given: dict[str, Tensor], scalars: dict[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """Arguments for an op by its schema; `None` where one is missing."""
    if schema.is_mutable:
        return None
    positional: list[Any] = []
    named: dict[str, Any] = {}
    used = 0
    for argument in schema.arguments:
        kind = str(argument.type)
        if "Tensor" in kind and "List" in kind:
            value: Any = [tensor for name, tensor in given.items() if name.startswith(f"{argument.name}[")]
            used += len(value)
            if not value:
                return None
        elif argument.name in given and "Tensor" in kind:
            value = given[argument.name]
            used += 1
        elif argument.name in scalars:
            value = scalars[argument.name]
        elif argument.has_default_value():
            value = argument.default_value
        else:
            return None
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    wanted = sum(not name.startswith(("result", "total_weight")) for name in given)
    return (positional, named) if used >= wanted else None
