"""`label-out-of-range`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loss_calls import Call, InARow, calls, failed, place, title
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LabelOutOfRange:
    """Labels do not fit the output: a class that it has no place for, or a target that is no probability.

    Why it matters
    --------------
    Cross-entropy raises on the CPU, and on a GPU fails somewhere later with a message about an assertion. Binary
    cross-entropy takes any number: with labels of -1 and 1, or 1 and 2, it has no lower bound, and the logits run away.

    How it is judged
    ----------------
    A cross-entropy or NLL loss that raises is looked at, at once: labels below zero, or not below the number of
    outputs, other than its `ignore_index`. For binary cross-entropy: targets below -`slack` or above 1 + `slack` in
    `looks` looks in a row, where they are neither weighted nor masked afterwards; what lies closer may be smoothed
    labels. For the soft margin loss, whose labels are -1 and 1: a label of 0.

    What to try
    -----------
    Classes count from 0: subtract one, or map the labels to 0 .. C-1. Give the last layer as many outputs as there are
    classes. Labels that are to be left out go to `ignore_index`.

    An example
    ----------
    Labels 1 to 10, ten outputs:

        F.cross_entropy(logits, y)        # IndexError: Target 10 is out of bounds
        F.cross_entropy(logits, y - 1)    # instead
    """

    id: ClassVar[str] = "label-out-of-range"
    needs: ClassVar[tuple[str, ...]] = ("facts/loss",)
    follows: ClassVar[tuple[str, ...]] = ()

    looks: int = 3
    slack: float = 0.3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_row")

    def __init__(self, detector: LabelOutOfRange) -> None:
        self._detector, self._row = detector, InARow()

    def check(self, reading: Reading) -> Finding | None:
        broken = failed(reading)
        if broken is not None:
            return self._broken(reading, broken)
        result: Finding | None = None
        for call in calls(reading):
            if self._row.add(call, self._is_outside(call)) >= self._detector.looks:
                result = result or self._told(reading, call)
        return result

    def _is_outside(self, call: Call) -> bool:
        if "target_low" not in call or call.get("reduction", "none") == "none":
            return False
        if call["name"] == "soft_margin_loss":
            return bool(call["target_least"] == 0.0)
        slack = self._detector.slack
        return bool(
            call["name"].startswith("binary_cross_entropy")
            and not call.get("weighted")
            and (call["target_low"] < -slack or call["target_high"] > 1.0 + slack)
        )

    def _told(self, reading: Reading, call: Call) -> Finding:
        low, high = call["target_low"], call["target_high"]
        evidence: dict[str, Any] = {"loss_function": call["name"], "target_low": low, "target_high": high}
        if call["name"] == "soft_margin_loss":
            message = (
                f"The {title(call)} wants labels of -1 and 1, and gets {number(low)} to {number(high)}:"
                " a label of 0 counts for nothing."
            )
            advice, severity = ["`target = 2 * target - 1`, if the labels are 0 and 1."], Severity.WARNING
        else:
            severity = Severity.CRITICAL
            evidence["slack"] = self._detector.slack
            message = (
                f"The {title(call)} wants targets between 0 and 1, and gets {number(low)} to {number(high)}:"
                f" so it {'raised' if 'error' in call else 'has no lower bound'}."
            )
            advice = [_mended(low, high)]
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=place(call))

    def _broken(self, reading: Reading, call: Call) -> Finding | None:
        """A loss that raised because of its labels."""
        if call.get("bad"):
            return self._no_such_class(reading, call)
        probabilities = call["name"] == "binary_cross_entropy" and 0.0 <= call.get("low", -1.0) <= call["high"] <= 1.0
        if probabilities and (call["target_low"] < 0.0 or call["target_high"] > 1.0):
            return self._told(reading, call)
        return None

    def _no_such_class(self, reading: Reading, call: Call) -> Finding:
        classes, labels = call["classes"], call["labels"]
        shown = ", ".join(str(label) for label in labels[:4]) + (" ..." if len(labels) > 4 else "")
        many = "label of the batch lies" if call["bad"] == 1 else "labels of the batch lie"
        message = (
            f"The output has {classes} classes, 0 to {classes - 1}, and {call['bad']} {many}"
            f" outside ({shown}; the first is at {call['samples'][0]}):"
            f" the {title(call)} raised."
        )
        highest, lowest = int(call["target_high"]), int(call["target_low"])
        if lowest < 0:
            advice = [f"If {lowest} marks what is to be left out: `F.cross_entropy(..., ignore_index={lowest})`."]
        elif lowest >= 1 and highest == classes:
            advice = ["The labels count from 1: `target = target - 1`."]
        else:
            advice = [
                f"Give the last layer at least {highest + 1} outputs, if there are so many classes.",
                f"Otherwise map the labels to 0 .. {classes - 1}.",
                f"If {highest} marks what is to be left out: `ignore_index={highest}`.",
            ]
        kept = ("classes", "bad", "labels", "samples", "ignore_index", "target_low", "target_high", "error")
        evidence = {"loss_function": call["name"], **{name: call[name] for name in kept if name in call}}
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=place(call))


def _mended(low: float, high: float) -> str:
    if low == -1.0 and high == 1.0:
        return "Labels of -1 and 1: `target = (target + 1) / 2`."
    if low >= 1.0 and high == 2.0:
        return "Labels of 1 and 2: `target = target - 1`."
    if low >= 0.0 and high > 2.0:
        return f"Divide the target by {high:g}, or, if it holds the numbers of classes, use `F.cross_entropy`."
    return "Bring the target between 0 and 1, or use `F.mse_loss` if it holds numbers of any size."
