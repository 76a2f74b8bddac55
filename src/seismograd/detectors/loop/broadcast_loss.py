"""`broadcast-loss`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from seismograd.detectors.loss_calls import Call, InARow, calls, place, shape, title
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class BroadcastLoss:
    """Prediction and target have different shapes, and were silently broadcast to a third one.

    Why it matters
    --------------
    (N, 1) less (N) is (N, N): every prediction is compared with every target. The loss falls to the variance of the
    targets, and the model learns to say their mean for any input.

    How it is judged
    ----------------
    Prediction and target of a squared error, L1, smooth L1 or Huber loss hold as many numbers each, and what is
    averaged holds more than either; and likewise for a difference or product that is written by hand on the way to the
    loss, of at least `rows` rows, where the difference is one number for each row less one for each column, within
    `tolerance`. In `looks` looks in a row. A dimension that was added on purpose (`unsqueeze`, `[:, None]`) right
    before, pairs of outputs among themselves, weights and scalars are left alone. A target with one column for several
    outputs, or the other way round, is told as an info: it may be meant.

    What to try
    -----------
    Bring both to one shape, and let an `assert prediction.shape == target.shape` stand before the loss.

    An example
    ----------
    The model's last layer has one output, the target no second dimension:

        F.mse_loss(model(x), y)                # (32, 1) and (32) make (32, 32)
        F.mse_loss(model(x).squeeze(1), y)     # instead
    """

    id: ClassVar[str] = "broadcast-loss"
    needs: ClassVar[tuple[str, ...]] = ("facts/loss",)
    follows: ClassVar[tuple[str, ...]] = ()

    looks: int = 2
    rows: int = 4
    tolerance: float = 1e-3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_one_sided", "_row")

    def __init__(self, detector: BroadcastLoss) -> None:
        self._detector, self._row, self._one_sided = detector, InARow(), InARow()

    def check(self, reading: Reading) -> Finding | None:
        result: Finding | None = None
        for call in calls(reading):
            if self._row.add(call, self._is_outer(call)) >= self._detector.looks:
                return self._told(reading, call)
            if self._one_sided.add(call, _is_one_sided(call)) >= self._detector.looks:
                result = result or self._one(reading, call)
        return result

    def _is_outer(self, call: Call) -> bool:
        if "result_shape" not in call or call.get("meant"):
            return False
        own, target, whole = call["shape"], call.get("target_shape"), call["result_shape"]
        if target is not None and (prod(target) != prod(own) or prod(whole) <= prod(own)):
            return False
        if call["name"] != "by hand":
            return True
        return bool(whole[0] >= self._detector.rows and call.get("unlike_outer", 0.0) <= self._detector.tolerance)

    def _told(self, reading: Reading, call: Call) -> Finding:
        own, whole = call["shape"], call["result_shape"]
        other = _short(call.get("target_shape")) or _other(own)
        message = (
            f"The {title(call)} compares a prediction of shape {shape(own)} with a target of shape {shape(other)}:"
            f" they are broadcast to {shape(whole)}, every prediction against every target."
        )
        if len(own) > len(other):
            at = next((at for at, size in enumerate(own) if size == 1 and at), 1)
            advice = [f"`prediction.squeeze({at})`, or `target.unsqueeze({at})`, so that both have one shape."]
        else:
            advice = ["`target.squeeze(1)`, or `prediction.unsqueeze(1)`, so that both have one shape."]
        advice.append("Before the loss: `assert prediction.shape == target.shape`.")
        evidence = _evidence(call) | {"looks": self._detector.looks}
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=place(call))

    def _one(self, reading: Reading, call: Call) -> Finding:
        message = (
            f"The {title(call)} compares a prediction of shape {shape(call['shape'])} with a target of shape"
            f" {shape(call['target_shape'])}: one column is compared with each of several."
        )
        advice = ["If that is not meant, give the last layer as many outputs as there are targets."]
        return found(self._detector, reading, Severity.INFO, message, _evidence(call), advice=advice, where=place(call))


def _is_one_sided(call: Call) -> bool:
    if "result_shape" not in call or call.get("meant") or call["name"] == "by hand":
        return False
    own, target, whole = call["shape"], call["target_shape"], call["result_shape"]
    return len(whole) > 1 and own[0] == target[0] == whole[0] > 1 and sorted((own[-1], target[-1])) == [1, whole[-1]]


def _evidence(call: Call) -> dict[str, Any]:
    kept = ("shape", "target_shape", "result_shape", "unlike_outer", "op")
    return {"loss_function": call["name"], **{name: call[name] for name in kept if name in call}}


def _short(sizes: Sequence[int] | None) -> list[int]:
    """Without the ones in front, which broadcasting may have put there."""
    rest = list(sizes or ())
    while len(rest) > 1 and rest[0] == 1:
        del rest[0]
    return rest


def _other(own: Sequence[int]) -> list[int]:
    """What the other side must have been."""
    return [own[0], *own[2:]] if len(own) > 1 and own[1] == 1 else [own[-1], 1]
