"""`loss-input-mismatch`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loss_calls import Call, InARow, calls, failed, place, shape, title
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity

_WIDTHS = {"Sigmoid": 1.0, "Hardsigmoid": 1.0, "Tanh": 2.0, "Relu": math.inf}
"""How far apart two logits can be behind these."""

_CLASSES = ("cross_entropy_loss", "nll_loss_nd")

_LAYERS = ("Addmm", "Mm", "Bmm", "Baddbmm", "Convolution", "Linear")
"""What these make may take any value."""

Told = tuple[Severity, str, list[str]]


@dataclass(frozen=True)
class LossInputMismatch:
    """The loss gets something other than what it is made for: logits, log-probabilities, labels of a shape or type.

    Why it matters
    --------------
    The numbers fit, so nothing fails, and the loss means something else: NLL of logits has no lower bound and does not
    compare classes, logits behind a sigmoid cannot tell them apart, and cross-entropy over one class is zero whatever
    the model says. Where the numbers do not fit, the loss raises, and the message names torch's inside.

    How it is judged
    ----------------
    On what goes into the loss, in `looks` looks in a row. `nll_loss` and `kl_div` want log-probabilities, which are
    never above zero (`above` is allowed for rounding). `cross_entropy` wants logits: a sigmoid, tanh or ReLU right
    before it is no place for one, and one column is no choice. `binary_cross_entropy` wants probabilities: what a layer
    made, cut off at 0 and 1, is none. A loss that raises is told at once, if shapes, types or
    ranges explain it.

    What to try
    -----------
    `cross_entropy` with logits, or `nll_loss` after `log_softmax`; `binary_cross_entropy_with_logits` for one output.

    An example
    ----------
    NLL without the logarithm:

        F.nll_loss(model(x), y)                         # wants log-probabilities
        F.nll_loss(F.log_softmax(model(x), dim=1), y)   # or F.cross_entropy(model(x), y)
    """

    id: ClassVar[str] = "loss-input-mismatch"
    needs: ClassVar[tuple[str, ...]] = ("facts/loss",)
    follows: ClassVar[tuple[str, ...]] = ()

    looks: int = 3
    above: float = 0.02

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_row")

    def __init__(self, detector: LossInputMismatch) -> None:
        self._detector, self._row = detector, InARow()

    def check(self, reading: Reading) -> Finding | None:
        broken = failed(reading)
        if broken is not None:
            return self._broken(reading, broken)
        result: Finding | None = None
        for call in calls(reading):
            told = self._judged(call)
            if self._row.add(call, told is not None) >= self._detector.looks and told is not None:
                result = result or self._found(reading, call, told)
        return result

    def _found(self, reading: Reading, call: Call, told: Told) -> Finding:
        severity, message, advice = told
        kept = ("makers", "shape", "target_shape", "classes", "low", "high", "sum_low", "sum_high", "error")
        evidence: dict[str, Any] = {
            "loss_function": call["name"],
            **{name: call[name] for name in kept if name in call},
        }
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=place(call))

    def _judged(self, call: Call) -> Told | None:
        name, made = call["name"], (call.get("makers") or [""])
        if name in _CLASSES and call.get("classes") == 1:
            return _one_class(call)
        if name in _CLASSES or name == "kl_div":
            logits = made if name == "cross_entropy_loss" else made[1:] if made[0] == "LogSoftmax" else []
            if logits and logits[0] in _WIDTHS:
                return _squashed(call, logits[0])
        if name == "binary_cross_entropy_with_logits" and made[0] == "Tanh":
            return _tanh(call)
        if name == "binary_cross_entropy" and made[0] in ("Clamp", "Hardtanh") and made[1:2] and made[1] in _LAYERS:
            return _cut_off(call)
        if name in ("nll_loss_nd", "kl_div") and "high" in call and call["high"] > self._detector.above:
            return self._no_logarithm(call)
        return None

    def _no_logarithm(self, call: Call) -> Told | None:
        loss = title(call)
        if call["low"] >= 0.0 and call["high"] <= 1.0 + 1e-3:
            return (
                Severity.WARNING,
                f"The {loss} wants log-probabilities and gets values between {number(call['low'])} and"
                f" {number(call['high'])}: probabilities, whose logarithm was not taken.",
                ["Use `log_softmax` where `softmax` is now, or `F.cross_entropy` on the logits."],
            )
        if call["log_sum"] <= self._detector.above:
            return None
        return (
            Severity.CRITICAL if call["name"] == "nll_loss_nd" else Severity.WARNING,
            f"The {loss} wants log-probabilities, which are never above zero, and gets values up to"
            f" {number(call['high'])}: logits, it seems. So it has no lower bound and does not compare the classes.",
            ["Use `F.cross_entropy` on the logits, or `F.log_softmax(output, dim=1)` before the loss."],
        )

    def _broken(self, reading: Reading, call: Call) -> Finding | None:
        told = _explained(call)
        return None if told is None else self._found(reading, call, (Severity.CRITICAL, *told))


def _one_class(call: Call) -> Told:
    return (
        Severity.CRITICAL,
        f"The {title(call)} gets one column for each sample, {shape(call['shape'])}: over a single class the softmax"
        " is always 1, so the loss is 0 whatever the model says, and nothing is learned.",
        [
            "For two classes and one output: `F.binary_cross_entropy_with_logits(output, target.float())`.",
            "For numbers: `F.mse_loss`. For more classes: as many outputs as classes.",
        ],
    )


def _squashed(call: Call, made: str) -> Told:
    width, classes = _WIDTHS[made], call.get("classes", 2)
    kind = {"Relu": "ReLU", "Tanh": "tanh"}.get(made, "sigmoid")
    message = f"The logits of the {title(call)} come out of a {kind}"
    if math.isfinite(width):
        floor = math.log1p((classes - 1) * math.exp(-width))
        message += f", so they differ by {number(width)} at most:"
        message += f" with {classes} classes the loss cannot fall below {number(floor)}."
    else:
        message += ", so none is below zero, and a class whose logit is zero gets no gradient any more."
    advice = [f"Take the {kind} after the last layer away: the loss takes the softmax of any numbers."]
    if kind == "sigmoid":
        advice.append("If a sample may have several labels: `F.binary_cross_entropy` with targets of that shape.")
    return Severity.WARNING, message, advice


def _tanh(call: Call) -> Told:
    return (
        Severity.WARNING,
        f"The logits of the {title(call)} come out of a tanh: the probability stays between 0.27 and 0.73.",
        ["Take the tanh after the last layer away: the loss takes the sigmoid of any number."],
    )


def _cut_off(call: Call) -> Told:
    return (
        Severity.WARNING,
        f"The {title(call)} wants probabilities and gets what a layer made, cut off at 0 and 1: whatever lies outside"
        " gets no gradient, and where it is wrong there, it stays wrong.",
        ["Use `F.binary_cross_entropy_with_logits` (`nn.BCEWithLogitsLoss`) on the output itself, without the clamp."],
    )


def _explained(call: Call) -> tuple[str, list[str]] | None:
    """Why a loss raised, as far as shapes, types and ranges tell."""
    if "target_shape" not in call or call.get("bad"):
        return None
    given, target, kind = call["shape"], call["target_shape"], call["target_dtype"]
    sizes = f"output {shape(given)}, target {shape(target)} of {kind}"
    whole = not kind.startswith(("float", "bfloat"))
    start = f"The {title(call)} raised"
    if call["name"] in _CLASSES:
        if not whole and len(target) < len(given):
            return f"{start}: labels are to be whole numbers ({sizes}).", ["`target = target.long()`."]
        if whole and target == given and len(given) > 1:
            return (
                f"{start}: it wants the number of the class for each sample, not a column for each class ({sizes}).",
                ["`target = target.argmax(dim=1)`, or `target = target.float()` if they are probabilities."],
            )
        if len(target) == len(given) and target[1:2] == [1]:
            return f"{start}: the target has one dimension too many ({sizes}).", ["`target = target.squeeze(1)`."]
        if len(given) > 2 and target == given[:-1]:
            return (
                f"{start}: the classes are to stand in the second dimension ({sizes}).",
                ["`F.cross_entropy(output.flatten(0, -2), target.flatten())`, or `output.transpose(1, -1)`."],
            )
        if given and target and given[0] != target[0]:
            return (
                f"{start}: {given[0]} predictions and {target[0]} labels ({sizes}).",
                ["Look for a `view` or `reshape` that mixes the batch with another dimension."],
            )
        if whole and kind != "int64":
            return f"{start}: labels are to be of int64 ({sizes}).", ["`target = target.long()`."]
        return None
    if call["name"] == "binary_cross_entropy" and (call.get("low", 0.0) < 0.0 or call.get("high", 1.0) > 1.0):
        return (
            f"{start}: it wants probabilities and gets values from {number(call['low'])} to {number(call['high'])}.",
            ["Use `F.binary_cross_entropy_with_logits` (`nn.BCEWithLogitsLoss`), or a sigmoid before this one."],
        )
    if whole:
        return f"{start}: the target is to be of the output's type ({sizes}).", ["`target = target.float()`."]
    return None
