"""Activation functions in an autograd graph: which values show it, along which axis its units lie, what made them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from seismograd.onlookers.graph import Graph, Node

RECTIFIERS = {"Gelu": -4.0, "Silu": -8.0, "Mish": -8.0, "Hardswish": -3.0, "Softplus": -8.0}
"""Smooth ones, and the input below which nothing comes through. ReLU and its kin say theirs themselves."""

LAYERS = {
    "Addmm": 2,
    "Mm": 1,
    "Bmm": 1,
    "Baddbmm": 2,
    "Linear": 1,
    "MkldnnLinear": 1,
    "Convolution": 1,
    "CudnnConvolution": 1,
    "Embedding": 0,
}
"""Ops that mix features by a weight, and which of their inputs the weight is."""

_NORMS = {
    "NativeBatchNorm": 1,
    "CudnnBatchNorm": 1,
    "MiopenBatchNorm": 1,
    "NativeGroupNorm": 1,
    "NativeLayerNorm": -1,
    "FusedRmsNorm": -1,
}
"""Norms, and the axis of their units."""

_ALIKE = frozenset(
    [
        "Add",
        "Mul",
        "Div",
        "ToCopy",
        "Clone",
        "Alias",
        "NativeDropout",
        "FusedDropout",
        "MaxPool2DWithIndices",
        "MaxPool3DWithIndices",
        "AvgPool2D",
        "AvgPool3D",
        "AdaptiveAvgPool2D",
        "AdaptiveAvgPool3D",
        "AdaptiveMaxPool2D",
        "MkldnnMaxPool2D",
        "ConstantPadNd",
    ]
)
"""Ops that leave the axes where they are."""

_RESHAPES = frozenset(
    [
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "Transpose",
        "Permute",
        "T",
        "Mean",
        "Sum",
        "Unflatten",
    ]
)
_ON_WEIGHTS = frozenset(
    ["T", "Transpose", "View", "Permute", "ToCopy", "Mul", "Div", "Expand", "WeightNormInterface", "Reshape"]
)
_GATES = frozenset(("Sigmoid", "Hardsigmoid", "Softmax", "Tanh"))
_FAR = 16
"""How many ops lie at most between a layer and its activation."""


KINDS = frozenset(
    (*RECTIFIERS, *["Relu", "Tanh", "Sigmoid", "Hardtanh", "Clamp", "ClampMin", "Threshold", "Hardsigmoid"])
)


@dataclass(slots=True)
class Seen:
    """Values that show what one activation function did, and the limits between which it answers."""

    values: Tensor
    low: float
    high: float | None = None
    """`None` for a rectifier: it has no upper limit, or none that matters."""


@dataclass(slots=True)
class Made:
    """What made the input of an activation: the layer's node, and the axis of the units at the activation."""

    by: int
    axis: int


def seen(node: Node) -> Seen | None:
    """What one of `KINDS` shows; `None` where nothing was saved, or it only keeps numbers within bounds."""
    name = node.name
    saved = node.saved()
    values = saved["result"] if "result" in saved else saved.get("self")
    if values is None:
        return None
    if name in _SHOWN:
        return Seen(values, *_SHOWN[name])
    if name in RECTIFIERS:
        return Seen(values, RECTIFIERS[name])
    low = _limit(node.function, {"Threshold": "threshold", "Hardtanh": "min_val"}.get(name, "min"))
    if low == 0.0:
        return Seen(values, 0.0)
    high = _limit(node.function, "max_val") if name == "Hardtanh" else None
    return None if low is None or high is None else Seen(values, low, high)


_SHOWN: dict[str, tuple[float, float | None]] = {
    "Relu": (0.0, None),
    "Tanh": (-0.99, 0.99),
    "Sigmoid": (0.01, 0.99),
    "Hardsigmoid": (-3.0, 3.0),
}


def _limit(function: Any, name: str) -> float | None:
    value = getattr(function, f"_saved_{name}", None)
    return float(value) if isinstance(value, (int, float)) else None


def made(graph: Graph, at: int) -> Made | None:
    """The layer or norm that made what this activation got, and where its units lie; `None` where that is not plain."""
    path, current = [at], _first(graph, at)
    while current >= 0 and len(path) < _FAR:
        node = graph.nodes[current]
        name = node.name
        if name in LAYERS or name in _NORMS:
            size = len(node.shape)
            if size < 2:
                return None
            axis: int | None = 1 if name.endswith("Convolution") else _NORMS.get(name, -1) % size
            shape = node.shape
            for step in reversed(path):
                if axis is None:
                    return None
                after = graph.nodes[step]
                axis = _moved(after, shape, axis)
                shape = after.shape
            return None if axis is None else Made(current, axis)
        if name not in _ALIKE and name not in _RESHAPES:
            return None
        path.append(current)
        current = _first(graph, current)
    return None


def _first(graph: Graph, at: int) -> int:
    """The node that made the first input which has a gradient."""
    return next((into for into in graph.nodes[at].into if into >= 0 and graph.nodes[into].leaf is None), -1)


def _moved(node: Node, before: tuple[int, ...], axis: int) -> int | None:
    """Where the axis lies after this op."""
    after = node.shape
    if node.name in ("Transpose", "T", "Permute"):
        return _turned(node, len(before), axis)
    if node.name not in _RESHAPES:
        axis += len(after) - len(before)  # broadcast against something with more axes
        return axis if 0 <= axis < len(after) and after[axis] == before[axis - len(after) + len(before)] else None
    behind = len(before) - axis
    trails = len(after) >= behind and after[len(after) - behind :] == before[axis:]
    leads = after[: axis + 1] == before[: axis + 1]
    if trails and (behind == 1 or not leads):
        return len(after) - behind
    return axis if leads else None


def _turned(node: Node, size: int, axis: int) -> int | None:
    function = node.function
    if node.name == "T":
        return size - 1 - axis
    if node.name == "Permute":
        order = [_signed(dim) % size for dim in function._saved_dims]
        return order.index(axis)
    one, other = _signed(function._saved_dim0) % size, _signed(function._saved_dim1) % size
    return other if axis == one else one if axis == other else axis


def _signed(dim: int) -> int:
    """Autograd shows a dimension of -1 as an unsigned number."""
    return dim - 2**64 if dim >= 2**63 else dim


def softmax_of_one(graph: Graph, at: int) -> bool:
    """Whether this is a softmax at the end of the model, over an axis of length one: 1 whatever goes in."""
    node = graph.nodes[at]
    if node.name not in ("Softmax", "LogSoftmax"):
        return False
    shape = node.shape
    dim = _signed(int(node.function._saved_dim))
    if not shape or shape[dim] != 1 or all(size == 1 for size in shape):
        return False
    below = downstream(graph, [at])
    return not any(
        graph.nodes[other].name in ("Mul", "Bmm", "Mm") and sum(into >= 0 for into in graph.nodes[other].into) > 1
        for other in below
    ) and not any(is_layer(graph, other) for other in below)


def weight(graph: Graph, at: int) -> Tensor | None:
    """The leaf that is the weight of this layer, `None` where it is frozen or made by other ops."""
    node = graph.nodes[at]
    place = LAYERS.get(node.name, 1)
    current = node.into[place] if place < len(node.into) else -1
    for _ in range(5):
        if current < 0:
            return None
        node = graph.nodes[current]
        if node.leaf is not None:
            return node.leaf
        if node.name not in _ON_WEIGHTS:
            return None
        current = next((into for into in node.into if into >= 0), -1)
    return None


def is_layer(graph: Graph, at: int) -> bool:
    """Whether this op mixes features by a weight, trained or frozen; not attention, nor a product of two outputs."""
    node = graph.nodes[at]
    place = LAYERS.get(node.name)
    if place is None:
        return False
    return place >= len(node.into) or node.into[place] < 0 or weight(graph, at) is not None


def downstream(graph: Graph, start: Iterable[int]) -> set[int]:
    """All nodes between these and the loss."""
    reached: set[int] = set()
    todo = list(start)
    while todo:
        for user in graph.users(todo.pop()):
            if user not in reached:
                reached.add(user)
                todo.append(user)
    return reached


def is_last(graph: Graph, at: int) -> bool:
    """Whether no layer comes after it: it is the model's output, or part of the loss."""
    reached: set[int] = set()
    todo = [at]
    while todo:
        for user in graph.users(todo.pop()):
            if user not in reached:
                if is_layer(graph, user):
                    return False
                reached.add(user)
                todo.append(user)
    return True


def is_gate(graph: Graph, at: int) -> bool:
    """Whether what comes out of it is multiplied with something else: a gate, or the layer before one."""
    squashed = graph.nodes[at].name in _GATES
    for _ in range(_FAR):
        users = graph.users(at)
        if squashed and any(
            graph.nodes[user].name in ("Mul", "Bmm") and sum(into >= 0 for into in graph.nodes[user].into) > 1
            for user in users
        ):
            return True
        if len(users) != 1 or (squashed and is_layer(graph, users[0])):
            return False
        at = users[0]
        squashed = squashed or graph.nodes[at].name in _GATES
    return False


def blocks(graph: Graph, layer: Iterable[int]) -> bool:
    """Whether everything that the model computes from its input has to pass through these nodes."""
    inside = set(layer)
    below = downstream(graph, inside)
    reached = {at for at in graph.starts if at not in inside}
    todo = list(reached)
    while todo:
        at = todo.pop()
        if at not in below and is_layer(graph, at):
            return False
        for into in graph.nodes[at].into:
            if into >= 0 and into not in inside and into not in reached:
                reached.add(into)
                todo.append(into)
    return True
