"""`double-softmax`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from seismograd.detectors.loss_calls import Call, InARow, calls, place, title
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity

_OWN = {"cross_entropy_loss": "LogSoftmax", "binary_cross_entropy_with_logits": "Sigmoid"}
"""What the loss does to its input itself."""

_SOFTMAX = ("Softmax", "LogSoftmax")


@dataclass(frozen=True)
class DoubleSoftmax:
    """Softmax, or sigmoid, is taken twice: once by the model, once by the loss.

    Why it matters
    --------------
    Probabilities lie between 0 and 1, so the second softmax makes all classes almost equally likely: the loss cannot
    fall below a floor far from zero, the gradients are small, and training is slow and stops early. Nothing fails.

    How it is judged
    ----------------
    By the op that made the loss's input, as the autograd graph knows it, views looked through: a softmax in front of
    `cross_entropy`, a sigmoid in front of `binary_cross_entropy_with_logits`, or two of them in front of any loss.
    Where the op is unknown, by the numbers: rows between 0 and 1 that sum to 1, within `tolerance`. In `looks` looks in
    a row. `log_softmax` in front of `cross_entropy` changes nothing, and attention inside the model is not in front of
    the loss: both are left alone.

    What to try
    -----------
    Return logits from the model, and take the softmax only where probabilities are wanted: in evaluation.

    An example
    ----------
    The last layer and the loss:

        nn.Sequential(nn.Linear(64, 10), nn.Softmax(dim=1)), nn.CrossEntropyLoss()    # twice
        nn.Sequential(nn.Linear(64, 10)), nn.CrossEntropyLoss()                       # once
    """

    id: ClassVar[str] = "double-softmax"
    needs: ClassVar[tuple[str, ...]] = ("facts/loss",)
    follows: ClassVar[tuple[str, ...]] = ()

    looks: int = 2
    tolerance: float = 5e-3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_row")

    def __init__(self, detector: DoubleSoftmax) -> None:
        self._detector, self._row = detector, InARow()

    def check(self, reading: Reading) -> Finding | None:
        result: Finding | None = None
        for call in calls(reading):
            twice = _twice(call)
            seen = twice is not None or self._are_probabilities(call)
            if self._row.add(call, seen) >= self._detector.looks:
                result = result or self._told(reading, call, twice)
        return result

    def _are_probabilities(self, call: Call) -> bool:
        """Whether the rows that go into cross-entropy are distributions already."""
        if call["name"] != "cross_entropy_loss" or "sum_low" not in call:
            return False
        slack = self._detector.tolerance
        return bool(
            call["low"] >= -slack
            and call["high"] <= 1.0 + slack
            and abs(call["sum_low"] - 1.0) < slack
            and abs(call["sum_high"] - 1.0) < slack
        )

    def _told(self, reading: Reading, call: Call, twice: tuple[str, str] | None) -> Finding:
        evidence: dict[str, Any] = {
            "loss_function": call["name"],
            "made_by": call.get("makers", []),
            "looks": self._detector.looks,
        }
        own = _OWN.get(call["name"])
        kind = "softmax" if twice is None else _word(twice[1])
        if own is None and twice is not None:
            message = (
                f"Before the {title(call)} the model's output goes through {_word(twice[1])} and then through"
                f" {_word(twice[0])}."
            )
            advice = [f"Take one of them away: {_word(twice[0])} wants logits."]
        else:
            message = (
                f"Probabilities go into {title(call)}, which takes the {_word(own or 'LogSoftmax')} itself:"
                f" the output has been through {kind} already."
            )
            if call["name"] == "cross_entropy_loss" and call.get("classes", 0) > 1:
                floor = math.log1p((call["classes"] - 1) / math.e)
                evidence["floor"] = floor
                message += f" With {call['classes']} classes the loss cannot fall below {number(floor)}."
                advice = [
                    "Take the softmax out of the model: `cross_entropy` wants logits.",
                    "For probabilities in evaluation: `probabilities = logits.softmax(dim=1)`.",
                ]
            else:
                advice = [
                    f"Take the {kind} out of the model, or use `F.binary_cross_entropy` (`nn.BCELoss`) after it."
                    if own == "Sigmoid"
                    else f"Take the {kind} out of the model: the loss wants logits."
                ]
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=place(call))


def _twice(call: Call) -> tuple[str, str] | None:
    """The outer and the inner one."""
    own = _OWN.get(call["name"])
    chain = [*([own] if own else []), *call.get("makers", [])]
    for outer, inner in pairwise([name for name in chain if name != "Log"]):
        if (outer in _SOFTMAX and inner == "Softmax") or (outer == "Sigmoid" and inner in ("Sigmoid", "Softmax")):
            return outer, inner
    return None


def _word(op: str) -> str:
    return "sigmoid" if op == "Sigmoid" else "softmax"
