"""How many inputs a unit of a weight has, as its use in the graph shows: for layers that are written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from seismograd.onlookers.graph import Graph, Node
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.weights.flow import VIEWS
from seismograd.probes.pack import Values
from seismograd.probes.watched import Watched

_PRODUCTS = {"Addmm": (1, 2), "Mm": (0, 1), "Bmm": (0, 1), "Baddbmm": (1, 2)}
"""Ops that multiply two matrices, and which of their inputs those are."""

_PASSED = (VIEWS | {"CloneBackward0", "ReshapeAliasBackward0"}) - {"SliceBackward0"}
"""What may be done to a weight before it is used, and leaves all of it there."""

_LONG = 16
"""A weight that is used so often in one pass is looked at for loops."""

_MOST_BACKWARDS = 8
"""So many are looked at: what has not been used by then is not asked for."""


class Uses(Onlooker):
    """Tells the roster the fan-in of parameters that no layer of torch's speaks for: `x @ w`, `F.linear`, `einsum`.

    Only where every use is as the one weight of a product or a convolution. A tied embedding, one of two factors and
    a weight that is scaled before it is used are left out: their spread says nothing of the signal's.

    Facts: the weights of plain recurrent cells, each use of which works on what came of the one before through a tanh,
    and how often they are used in a row.
    """

    topic = "uses"
    dear = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._left = _MOST_BACKWARDS
        self._loops: dict[str, int] = {}

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        roster = self.watched.roster
        if graph is None or not self._left:
            return
        self._left -= 1
        unknown = {
            id(parameter)
            for parameter, fan_in in zip(roster.parameters, roster.fan_in, strict=True)
            if not fan_in and parameter.ndim >= 2
        }
        for at, node in enumerate(graph.nodes) if unknown else ():
            leaf = node.leaf
            if leaf is not None and id(leaf) in unknown:
                found = {_fan_in(graph, before, user, leaf) for before, user in _uses(graph, at)}
                if len(found) == 1 and (fan_in := found.pop()):
                    self.watched.is_weight(leaf, fan_in)
        self._look_for_loops(graph)

    def _look_for_loops(self, graph: Graph) -> None:
        roster = self.watched.roster
        names = {id(each): name for each, name in zip(roster.parameters, roster.names, strict=True)}
        for at, node in enumerate(graph.nodes):
            leaf = node.leaf
            if leaf is None or leaf.ndim != 2 or leaf.shape[0] != leaf.shape[1] or len(graph.users(at)) < _LONG:
                continue
            uses = [user for _, user in _uses(graph, at)]
            if id(leaf) in names and all(_squashes(graph, user) for user in uses) and _in_a_row(graph, uses):
                self._loops[names[id(leaf)]] = len(uses)

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        loops, self._loops = self._loops, {}
        return {"loops": loops} if loops else None


def _uses(graph: Graph, at: int) -> list[tuple[int, int]]:
    """The ops that a leaf goes into, its own views being passed, each with the view that goes in."""
    found = []
    waiting = [at]
    while waiting:
        before = waiting.pop()
        for user in graph.users(before):
            if graph.nodes[user].kind in _PASSED:
                waiting.append(user)
            else:
                found.append((before, user))
    return found


def _fan_in(graph: Graph, before: int, user: int, leaf: Tensor) -> int:
    """What one unit sums over in this use; 0 where that cannot be said."""
    node = graph.nodes[user]
    if node.name.endswith("Convolution"):
        return leaf.shape[1:].numel() if len(node.into) > 1 and node.into[1] == before else 0
    places = _PRODUCTS.get(node.name)
    if places is None:
        return 0
    left, right = (node.into[place] for place in places)
    if (left == before) == (right == before) or _is_leaf(graph, left) == _is_leaf(graph, right):
        return 0
    units = _batch(node, leaf) * node.shape[-2 if left == before else -1]
    return leaf.numel() // units if units and leaf.numel() % units == 0 else 0


def _batch(node: Node, leaf: Tensor) -> int:
    """How many weights lie side by side in one tensor, one for each expert or head."""
    return node.shape[0] if len(node.shape) == 3 and leaf.ndim == 3 and leaf.shape[0] == node.shape[0] else 1


def _is_leaf(graph: Graph, at: int) -> bool:
    """Whether this is a parameter, or a view of one."""
    while at >= 0 and graph.nodes[at].kind in _PASSED:
        at = graph.nodes[at].into[0]
    return at >= 0 and graph.nodes[at].leaf is not None


def _squashes(graph: Graph, at: int) -> bool:
    """Whether this product goes through a tanh, with nothing but sums before it, and is no gate."""
    for _ in range(4):
        users = graph.users(at)
        if len(users) != 1:
            return False
        at = users[0]
        if graph.nodes[at].name == "Tanh":
            return not any(graph.nodes[user].name == "Mul" for user in graph.users(at))
        if graph.nodes[at].name != "Add":
            return False
    return False


def _in_a_row(graph: Graph, uses: list[int]) -> bool:
    """Whether the first use is behind the last one."""
    ordered = sorted(uses, key=lambda use: graph.nodes[use].number)
    seen, waiting = {ordered[-1]}, [ordered[-1]]
    while waiting:
        for other in graph.nodes[waiting.pop()].into:
            if other == ordered[0]:
                return True
            if other >= 0 and other not in seen:
                seen.add(other)
                waiting.append(other)
    return False
