"""Recurrent cells, as the graph shows them: a weight that is used again and again on what came of it before."""

from __future__ import annotations

from collections.abc import Mapping

from seismograd.onlookers.graph import Graph
from seismograd.onlookers.weights.flow import uses

_LONG = 16
"""A weight has to be used so often in one pass."""


def loops(graph: Graph, names: Mapping[int, str]) -> dict[str, int]:
    """The weights of plain cells, with nothing but a tanh, and how often each is used in a row. `names`: by id."""
    found = {}
    for at, node in enumerate(graph.nodes):
        leaf = node.leaf
        if leaf is None or leaf.ndim != 2 or leaf.shape[0] != leaf.shape[1] or len(graph.users(at)) < _LONG:
            continue
        users = [user for _, user in uses(graph, at)]
        if id(leaf) in names and all(_squashes(graph, user) for user in users) and _in_a_row(graph, users):
            found[names[id(leaf)]] = len(users)
    return found


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
