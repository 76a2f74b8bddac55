"""`output-range`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loss_calls import Call, InARow, calls, place, title
from seismograd.detectors.running import Welford
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity

_NAMES = {"Relu": "ReLU", "Hardtanh": "hard tanh", "LogSoftmax": "log-softmax", "LogSigmoid": "log-sigmoid"}


@dataclass(frozen=True)
class OutputRange:
    """The last activation cannot reach the targets.

    Why it matters
    --------------
    A sigmoid says numbers between 0 and 1, a tanh between -1 and 1, a ReLU none below 0. Whatever the targets hold
    beyond that cannot be learned: the output saturates there, its gradient dies, and the loss stays above a floor.

    How it is judged
    ----------------
    Where an activation with bounds stands right before a squared error, L1, smooth L1 or Huber loss, or a difference
    that is written by hand: on average over at least `looks` looks more than `outside` of the targets lie beyond its
    bounds, and what it cannot reach is more than `unreachable` of their variance. A few outliers, noise around a bound
    and targets that are masked are left alone. And a ReLU, softplus or exponential right before
    `binary_cross_entropy_with_logits`, which then never says less than one half, although at least `negatives` of the
    targets want it.

    What to try
    -----------
    Take the activation after the last layer away, or scale the targets into its range.

    An example
    ----------
    Standardised targets behind a sigmoid:

        nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())    # y is -2 to 2
        nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))                  # instead
    """

    id: ClassVar[str] = "output-range"
    needs: ClassVar[tuple[str, ...]] = ("facts/loss",)
    follows: ClassVar[tuple[str, ...]] = ()

    looks: int = 4
    outside: float = 0.05
    unreachable: float = 0.05
    negatives: float = 0.05

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_row", "_seen")

    def __init__(self, detector: OutputRange) -> None:
        self._detector, self._row = detector, InARow()
        self._seen: dict[tuple[Any, ...], tuple[Welford, Welford]] = {}

    def check(self, reading: Reading) -> Finding | None:
        for call in calls(reading):
            finding = self._bounded(reading, call) or self._half(reading, call)
            if finding is not None:
                return finding
        return None

    def _bounded(self, reading: Reading, call: Call) -> Finding | None:
        if "bounds" not in call or call.get("reduction") == "none":
            return None
        limits, made = self._detector, call["makers"][0]
        key = (call["name"], call.get("file"), call.get("line"), made)
        if key not in self._seen and len(self._seen) >= 64:
            return None
        outside, unreachable = self._seen.setdefault(key, (Welford(), Welford()))
        outside.add(call["outside"])
        unreachable.add(call["unreachable"])
        if outside.count < limits.looks or not (
            outside.mean > limits.outside and unreachable.mean > limits.unreachable
        ):
            return None
        low, high = call["bounds"]
        between = f"at least {number(low)}" if high is None else f"at most {number(high)}"
        if low is not None and high is not None:
            between = f"between {number(low)} and {number(high)}"
        message = (
            f"The output comes from a {_NAMES.get(made, made.lower())}, {between}, and the targets of the"
            f" {title(call)} go from"
            f" {number(call['target_low'])} to {number(call['target_high'])}: {100 * outside.mean:.0f} % of them"
            " cannot be reached."
        )
        evidence = {
            "made_by": made,
            "bounds": call["bounds"],
            "outside": outside.mean,
            "outside_limit": limits.outside,
            "unreachable": unreachable.mean,
            "unreachable_limit": limits.unreachable,
            "target_low": call["target_low"],
            "target_high": call["target_high"],
        }
        advice = [f"Take the {_NAMES.get(made, made.lower())} after the last layer away."]
        if low is not None and high is not None:
            advice.append(f"Or scale the targets to lie {between}.")
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=place(call))

    def _half(self, reading: Reading, call: Call) -> Finding | None:
        made = (call.get("makers") or [""])[0]
        seen = (
            call["name"] == "binary_cross_entropy_with_logits"
            and made in ("Relu", "Softplus", "Exp")
            and call.get("target_mean", 1.0) < 1.0 - self._detector.negatives
        )
        if self._row.add(call, seen) < self._detector.looks:
            return None
        kind = _NAMES.get(made, made.lower())
        message = (
            f"The logits of the {title(call)} come from a {kind}, so that none is below zero: the probability is never"
            f" below one half, and {100 * (1 - call['target_mean']):.0f} % of the targets are 0."
        )
        evidence = {"made_by": made, "target_mean": call["target_mean"], "negatives": self._detector.negatives}
        advice = [f"Take the {kind} after the last layer away: the loss takes the sigmoid of any number."]
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=place(call))
