"""Layers that are stacked with nothing but views, dropout and constants between them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor, nn

from seismograd.onlookers.graph import Graph, Node
from seismograd.probes.watched import Roster

_WEIGHT_AT = {"Addmm": 2, "Mm": 1, "Linear": 1, "Convolution": 1}
_DATA_AT = {"Addmm": 1, "Mm": 0, "Linear": 0, "Convolution": 0}

_VIEWS = frozenset(
    (
        *("View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "T", "Squeeze", "Unsqueeze", "ToCopy"),
        *("Clone", "Alias", "NativeDropout"),
    )
)
_AVERAGES = frozenset(
    ("NativeBatchNorm", "CudnnBatchNorm", "BatchNorm", "AvgPool2D", "AvgPool3D", "AdaptiveAvgPool2D", "Mean")
)
"""Linear too, once trained: between two layers they may be meant, in a model of nothing else they do not help."""


@dataclass(slots=True)
class _Layer:
    """A node that multiplies what comes by a weight of its own."""

    at: int
    before: int
    """The node that its data come from: -1 for the batch itself."""
    weight: int
    leaves: set[int]
    """The parameters that it and what lies between it and the one before use."""
    plain: bool = True
    """Only views lie between it and the one before."""
    previous: int | None = None


def stacks_of(graph: Graph, roster: Roster) -> list[dict[str, Any]]:
    """Every chain of two layers or more in which each is fed by the one before, and by nothing else."""
    layers = {at: layer for at, node in enumerate(graph.nodes) if (layer := _layer(graph, at, node)) is not None}
    if len(layers) < 2:
        return []
    for layer in layers.values():
        _go_back(graph, layer, layers)
    followed = {layer.previous for layer in layers.values()}
    found: list[dict[str, Any]] = []
    for at, layer in layers.items():
        if at in followed or layer.previous is None:
            continue
        stack = [layer]
        while (before := stack[-1].previous) is not None:
            stack.append(layers[before])
        stack.reverse()
        if len({each.weight for each in stack}) == len(stack):
            found.append(_told(graph, stack, roster))
    return found


def _layer(graph: Graph, at: int, node: Node) -> _Layer | None:
    place = _WEIGHT_AT.get(node.name)
    if place is None or len(node.into) <= place:
        return None
    weight = _leaf(graph, node.into[place])
    if weight is None:
        return None
    data = _DATA_AT[node.name]
    leaves = {leaf for other in node.into if other != node.into[data] and (leaf := _leaf(graph, other)) is not None}
    return _Layer(at, node.into[data], weight, leaves)


def _leaf(graph: Graph, at: int) -> int | None:
    """The parameter that a node only turns or casts."""
    while at >= 0:
        node = graph.nodes[at]
        if node.leaf is not None:
            return at
        if node.name not in ("T", "Transpose", "Permute", "ToCopy", "View") or len(node.into) != 1:
            return None
        at = node.into[0]
    return None


def _go_back(graph: Graph, layer: _Layer, layers: dict[int, _Layer]) -> None:
    """Finds the layer before this one, if nothing that is not linear lies between them."""
    at = layer.before
    while at >= 0:
        if len(graph.users(at)) > 1:
            layer.before = at
            return
        if at in layers:
            layer.previous = at
            return
        node = graph.nodes[at]
        onwards = [other for other in node.into if other >= 0 and _leaf(graph, other) is None]
        if len(onwards) > 1 or not _is_linear(node):
            layer.before = at
            return
        layer.leaves.update(leaf for other in node.into if (leaf := _leaf(graph, other)) is not None)
        layer.plain = layer.plain and node.name not in _AVERAGES
        at = onwards[0] if onwards else -1
    layer.before = -1


def _is_linear(node: Node) -> bool:
    if node.name in _VIEWS or node.name in _AVERAGES or node.name == "Add":  # of a bias, or of a constant
        return True
    return node.name == "Mul" and node.span is not None and isinstance(node.span.module, nn.modules.dropout._DropoutNd)


def _told(graph: Graph, stack: list[_Layer], roster: Roster) -> dict[str, Any]:
    names = {id(parameter): name for name, parameter in zip(roster.names, roster.parameters, strict=True)}
    leaves = set().union(*(layer.leaves for layer in stack))
    every = {at for at, node in enumerate(graph.nodes) if node.leaf is not None}
    nodes, weights = [graph.nodes[one.at] for one in stack], [graph.nodes[one.weight].leaf for one in stack]
    return {
        "layers": [names.get(id(weight), "") for weight in weights],
        "kinds": sorted({node.name for node in nodes}),
        "widths": [_width_in(nodes[0], weights[0]), *map(_width_out, nodes)],
        "plain": all(layer.plain for layer in stack[1:]),
        "whole": stack[0].before == -1 and leaves == every,
    }


def _width_in(node: Node, weight: Tensor | None) -> int:
    """How many numbers of one sample go into the first layer; 0: unknown, a checkpoint keeps its input to itself."""
    if node.name != "Convolution":
        return 0 if weight is None else weight.numel() // max(1, _width_out(node))
    data = node.saved().get("input")
    return 0 if data is None else prod(data.shape[1:])


def _width_out(node: Node) -> int:
    return prod(node.shape[1:]) if node.name == "Convolution" else node.shape[-1]
