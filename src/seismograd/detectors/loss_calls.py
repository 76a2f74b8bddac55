"""What the onlooker of losses told: its calls, their places, and how often in a row something was seen of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seismograd.records import Reading, Where

Call = Mapping[str, Any]

_TITLES = {
    "cross_entropy_loss": "cross-entropy",
    "nll_loss_nd": "NLL loss",
    "kl_div": "KL divergence",
    "binary_cross_entropy": "binary cross-entropy",
    "binary_cross_entropy_with_logits": "binary cross-entropy with logits",
    "mse_loss": "squared error",
    "l1_loss": "L1 loss",
    "smooth_l1_loss": "smooth L1 loss",
    "huber_loss": "Huber loss",
    "soft_margin_loss": "soft margin loss",
    "by hand": "loss",
}

_MOST = 64
"""So many places are kept apart."""


def calls(reading: Reading) -> Sequence[Call]:
    """The losses of the step that backward went through."""
    told: Sequence[Call] = reading.facts["loss"].get("calls", ())
    return told


def failed(reading: Reading) -> Call | None:
    """The loss that raised, if this reading is about one."""
    return reading.facts["loss"].get("failed")


def title(call: Call) -> str:
    """What people call this loss."""
    return _TITLES.get(call["name"], str(call["name"]))


def place(call: Call) -> Where:
    """The user's line."""
    return Where(phase="loss", file=call.get("file"), line=call.get("line"), code=call.get("code"))


def shape(sizes: Sequence[int]) -> str:
    """`(32, 1)`."""
    return f"({', '.join(str(size) for size in sizes)})"


class InARow:
    """For each place how often in a row something was seen there."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[Any, ...], int] = {}

    def add(self, call: Call, seen: bool) -> int:
        key = (call["name"], call.get("file"), call.get("line"))
        if not seen:
            self._counts.pop(key, None)
            return 0
        if len(self._counts) >= _MOST and key not in self._counts:
            return 0
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key]
