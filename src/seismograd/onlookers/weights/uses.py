"""How many inputs a unit of a weight has, as its use in the graph shows: for layers that are written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from seismograd.onlookers.graph import Graph, Node
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.weights.flow import VIEWS, uses
from seismograd.onlookers.weights.loops import loops
from seismograd.probes.pack import Values
from seismograd.probes.watched import Watched

_PRODUCTS = {"Addmm": (1, 2), "Mm": (0, 1), "Bmm": (0, 1), "Baddbmm": (1, 2)}
"""Ops that multiply two matrices, and which of their inputs those are."""

_PASSED = (VIEWS | {"CloneBackward0", "ReshapeAliasBackward0"}) - {"SliceBackward0"}
"""What may be done to a weight before it is used, and leaves all of it there."""

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
                found = {_fan_in(graph, before, user, leaf) for before, user in uses(graph, at, _PASSED)}
                if len(found) == 1 and (fan_in := found.pop()):
                    self.watched.is_weight(leaf, fan_in)
        names = {id(each): name for each, name in zip(roster.parameters, roster.names, strict=True)}
        self._loops.update(loops(graph, names))

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        found, self._loops = self._loops, {}
        return {"loops": found} if found else None


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
