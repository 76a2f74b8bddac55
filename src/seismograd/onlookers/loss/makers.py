"""Which op made a tensor: its last node in the autograd graph, views looked through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

VIEWS = frozenset(
    (
        *("View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "T", "Squeeze", "Unsqueeze", "Expand"),
        *("Slice", "Select", "Index", "IndexSelect", "MaskedSelect", "Gather", "ToCopy", "Clone", "Alias", "Split"),
        *("SplitWithSizes", "Unbind", "Narrow", "AsStrided", "PixelShuffle"),
    )
)
"""What only picks, orders or copies values."""

LAYERS = frozenset(("Addmm", "Mm", "Bmm", "Baddbmm", "Convolution", "Linear"))
"""What these make may take any value."""

_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("Sigmoid", "Softmax", "Hardsigmoid"), (0.0, 1.0)),
    **dict.fromkeys(("Relu", "Softplus", "Exp"), (0.0, None)),
    **dict.fromkeys(("LogSoftmax", "LogSigmoid"), (None, 0.0)),
    "Tanh": (-1.0, 1.0),
}

_PASSED = frozenset((*_BOUNDS, "Log", "Hardtanh", "Clamp"))
"""What lies behind these is of interest too."""

_FAR = 48
"""So many nodes are gone back at most."""


def name_of(function: Any) -> str:
    """`Relu` for a node called `ReluBackward0`."""
    return str(function.name()).rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")


def maker_of(function: Any) -> Any:
    """The node that made a tensor, from the last one on; `None` where views of several things meet, or nothing is."""
    for _ in range(_FAR):
        if function is None:
            return None
        name = name_of(function)
        inputs = [other for other, _ in function.next_functions]
        if name not in VIEWS and not (name in ("Cat", "Stack") and _alike(inputs)):
            return function
        function = next((other for other in inputs if other is not None), None)
    return None


def makers_of(function: Any, most: int = 3) -> list[str]:
    """The op that made a tensor, and what lies before it where that is an activation: `LogSoftmax`, `Addmm`."""
    found: list[str] = []
    while len(found) < most and (function := maker_of(function)) is not None:
        name = name_of(function)
        found.append(name)
        if name not in _PASSED:
            break
        function = function.next_functions[0][0]
    return found


def bounds_of(function: Any) -> tuple[float | None, float | None] | None:
    """What the activation that made a tensor can reach; `None` where it is none, or reaches everything."""
    maker = maker_of(function)
    if maker is None:
        return None
    name = name_of(maker)
    if name == "Hardtanh":
        return float(maker._saved_min_val), float(maker._saved_max_val)
    return _BOUNDS.get(name)


def adds_a_dimension(function: Any) -> bool:
    """Whether the last thing that was done to a tensor was to make room for a broadcast: somebody means it."""
    name = name_of(function)
    if name == "Expand":
        function = function.next_functions[0][0]
        if function is None:
            return False
        name = name_of(function)
    if name == "View":
        before = function.next_functions[0][0]
        return before is not None and len(_shape(before)) < len(_shape(function))
    return name in ("Unsqueeze", "T", "Transpose", "Permute")


def _shape(function: Any) -> Sequence[int]:
    metadata = function._input_metadata
    return tuple(metadata[0].shape) if metadata else ()


def _alike(functions: Sequence[Any]) -> bool:
    """Whether all of these were made by one kind of op: the steps of a sequence, say."""
    kinds = {None if (maker := maker_of(each)) is None else name_of(maker) for each in functions[:8]}
    return len(kinds) == 1 and None not in kinds
