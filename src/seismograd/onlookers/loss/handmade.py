"""Losses that are written by hand: differences and products between the model's output and the root of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from seismograd.onlookers.graph import Graph, Node, saved_by
from seismograd.onlookers.loss.makers import adds_a_dimension, bounds_of, maker_of, makers_of
from seismograd.onlookers.loss.ranges import reach
from seismograd.places import Spot

_MOST_NODES = 48

_ELEMENTWISE = frozenset(
    (
        *("Mean", "Sum", "Neg", "Add", "Sub", "Rsub", "Mul", "Div", "Pow", "Abs", "Sqrt", "Log", "Log1P", "Exp"),
        *("Clamp", "ClampMin", "ClampMax", "ToCopy", "View", "Squeeze"),
    )
)
"""What such a loss is made of."""

_BINARY = ("Sub", "Rsub", "Mul", "Div", "Add")

_VIEWS = ("View", "UnsafeView", "Squeeze", "Unsqueeze", "Select", "Slice", "T", "Transpose", "Permute", "Expand")

Told = tuple[dict[str, Any], dict[str, Tensor], tuple[Spot, ...]]


def handmade(graph: Graph) -> Iterator[Told]:
    """What is broadcast on the way to the root though both sides are of one size, and differences from an activation
    that has bounds: the first of either kind."""
    wanted = {"outer", "bounded"}
    for at in _near(graph):
        node = graph.nodes[at]
        if "outer" in wanted and node.name in _BINARY and (told := _outer(graph, at)) is not None:
            wanted.discard("outer")
            yield told, _structure(graph, at), place_of(node)
        elif "bounded" in wanted and node.name in ("Sub", "Rsub") and (measured := _bounded(graph, at)) is not None:
            wanted.discard("bounded")
            yield *measured, place_of(node)


def _near(graph: Graph) -> Iterator[int]:
    """The nodes between the root and the model's output, nearest first."""
    waiting = [at for at in graph.starts if graph.nodes[at].name in _ELEMENTWISE]
    seen = set(waiting)
    for at in waiting:
        yield at
        for other in graph.nodes[at].into:
            if other >= 0 and other not in seen and graph.nodes[other].name in _ELEMENTWISE:
                seen.add(other)
                waiting.append(other)
        if len(waiting) > _MOST_NODES:
            return


def _outer(graph: Graph, at: int) -> dict[str, Any] | None:
    """The shapes where (N, 1) met (N): every row of one with every row of the other."""
    node = graph.nodes[at]
    shape, inputs = node.shape, [graph.nodes[other] if other >= 0 else None for other in node.into]
    if len(shape) < 2 or shape[0] != shape[1] or len(inputs) != 2:
        return None
    sides = [None if side is None else side.shape for side in inputs]
    kinds = [None if side is None else _kind(side, shape) for side in sides]
    known = [side for side in inputs if side is not None]
    if any(side.leaf is not None or adds_a_dimension(side.function) for side in known):
        return None
    if len(known) == 2:
        if set(kinds) != {"rows", "columns"} or any(side.name in _VIEWS for side in known):
            return None
    elif not known or all(kind is None for kind in kinds):
        return None
    saved = node.saved() if node.name in ("Mul", "Div") else {}
    size = next(kind for kind in sides if kind is not None)
    other = next((list(tensor.shape) for tensor in saved.values() if tuple(tensor.shape) != tuple(size)), None)
    if other is not None and _count(other) != _count(size):
        return None
    told = {"op": node.name, "shape": list(size), "result_shape": list(shape), "meant": False}
    if len(known) == 2:
        told["target_shape"] = list(known[1].shape)
    elif other is not None:
        told["target_shape"] = other
    return told


def _kind(side: tuple[int, ...], shape: tuple[int, ...]) -> str | None:
    """`rows` for (N, 1) in (N, N), `columns` for (N) or (1, N)."""
    full = (1,) * (len(shape) - len(side)) + side
    if full[2:] != shape[2:]:
        return None
    if full[0] == shape[0] and full[1] == 1:
        return "rows"
    return "columns" if full[0] == 1 and full[1] == shape[1] else None


def _structure(graph: Graph, at: int) -> dict[str, Tensor]:
    """How far a difference is from one number for each row less one for each column, where an op keeps it."""
    kept = _kept(graph, at) if graph.nodes[at].name in ("Sub", "Rsub") else None
    if kept is None:
        return {}
    corner = kept[:8, :8].float()
    rest = corner - corner[:1] - corner[:, :1] + corner[:1, :1]
    return {"unlike_outer": rest.abs().amax() / corner.abs().amax().clamp_min(torch.finfo().tiny)}


def _bounded(graph: Graph, at: int) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """How a difference from what an activation made stands to its bounds, where both are kept."""
    node = graph.nodes[at]
    given = [graph.nodes[other] for other in node.into if other >= 0]
    if len(node.into) != 2 or len(given) != 1 or getattr(node.function, "_saved_alpha", 1) != 1:
        return None
    bounds, maker = bounds_of(given[0].function), maker_of(given[0].function)
    if bounds is None or given[0].shape != node.shape:
        return None
    result, difference = saved_by(maker).get("result"), None if _is_masked(graph, at) else _kept(graph, at)
    if result is None or difference is None or result.numel() != difference.numel():
        return None
    sign = 1.0 if (node.into[0] >= 0) != (node.name == "Rsub") else -1.0
    target = result.reshape(difference.shape) - sign * difference
    told = {"makers": makers_of(given[0].function), "bounds": list(bounds), "shape": list(node.shape)}
    return told, reach(target, bounds)


def _is_masked(graph: Graph, difference: int) -> bool:
    """Whether a difference, or its square, is multiplied by what has no gradient: a mask, it may be."""
    users = graph.users(difference)
    for at in [*users, *(later for user in users for later in graph.users(user))]:
        node = graph.nodes[at]
        if node.name in ("Index", "MaskedSelect", "Where", "MaskedFill"):
            return True
        if node.name == "Mul" and -1 in node.into and any(kept.numel() > 1 for kept in node.saved().values()):
            return True
    return False


def _kept(graph: Graph, at: int) -> Tensor | None:
    """What a node made, where an op that uses it keeps it."""
    shape = graph.nodes[at].shape
    for user in graph.users(at):
        for kept in graph.nodes[user].saved().values():
            if tuple(kept.shape) == shape and kept.is_floating_point():
                return kept
    return None


def place_of(node: Node) -> tuple[Spot, ...]:
    """The user's line that made the node, if it was noted."""
    return tuple(getattr(node.function.metadata.get("traceback_"), "spots", ()))


def _count(shape: Any) -> int:
    count = 1
    for size in shape:
        count *= int(size)
    return count
