"""`ineffective-clipping`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.orders import at, in_words, named, whose
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class IneffectiveClipping:
    """Gradients are clipped where it does no good: after the step, before backward, while still scaled, or none at all.

    Why it matters
    --------------
    The run has no protection against a large gradient, though its code says it has.

    How it is judged
    ----------------
    For each optimizer, in `in_a_row` steps one after another, not one of the calls of `clip_grad_norm_` and
    `clip_grad_value_` came between backward and the step and touched a gradient. Late: no backward since the last
    step. Early: there is no gradient yet. Nothing: the list of parameters is empty (a generator that was used up
    before), or none of them has a gradient. Scaled: a `GradScaler` has scaled the loss and `unscale_` was not called,
    and the limit is far below the scale (`scale` times), so that it is not meant for scaled gradients. Limits of a
    million and more, or infinity, are there to learn the norm, and count as no clipping.

    What to try
    -----------
    `backward()`, `scaler.unscale_(optimizer)` if there is a scaler, `clip_grad_norm_(model.parameters(), 1.0)`,
    `step()`.

    An example
    ----------

        params = model.parameters()                # a generator
        optimizer = torch.optim.SGD(params, 0.1)   # uses it up
        ...
        clip_grad_norm_(params, 1.0)               # clips nothing: model.parameters() again
    """

    id: ClassVar[str] = "ineffective-clipping"
    needs: ClassVar[tuple[str, ...]] = ("facts/order",)
    follows: ClassVar[tuple[str, ...]] = ()

    in_a_row: int = 3
    scale: float = 16.0

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_row")

    def __init__(self, detector: IneffectiveClipping) -> None:
        self._detector = detector
        self._row: dict[int, int] = {}

    def check(self, reading: Reading) -> Finding | None:
        facts, finding = reading.facts["order"], None
        for turn in facts["turns"]:
            owner = turn["optimizer"]
            if not turn["backwards"]:
                continue
            clips = [kind for kind in turn["clips"] if kind != "scaled" or self._is_far_below(turn)]
            if not clips or "right" in turn["clips"] or len(clips) < len(turn["clips"]):
                self._row[owner] = 0
                continue
            self._row[owner] = self._row.get(owner, 0) + 1
            if self._row[owner] >= self._detector.in_a_row:
                finding = self._found(reading, facts, turn, self._row[owner])
        return finding

    def _is_far_below(self, turn: Mapping[str, Any]) -> bool:
        return turn["scale"] is not None and self._detector.scale * turn["limit"] <= turn["scale"]

    def _found(self, reading: Reading, facts: Mapping[str, Any], turn: Mapping[str, Any], row: int) -> Finding:
        kind, limit = turn["clips"][-1], number(turn["limit"])
        message, advice = _WORDS[kind]
        if kind == "scaled":
            message = message.format(limit=limit, scale=number(turn["scale"]))
        evidence = {"clipped": kind, "limit": turn["limit"], "scale": turn["scale"], "steps_in_a_row": row}
        return found(
            self._detector,
            reading,
            Severity.WARNING,
            f"Clipping has no effect on the steps of {named(facts, turn)}: {message} ({row} steps in a row).",
            {**evidence, "order": turn["order"], **whose(facts, turn)},
            where=at(turn, "clip"),
            advice=(advice, f"The loop does {in_words(turn['order'])}."),
        )


_BETWEEN = "Clip after `loss.backward()` and before `optimizer.step()`."
_WORDS = {
    "late": ("gradients are clipped after the step that used them", _BETWEEN),
    "early": ("gradients are clipped before backward, when there are none", _BETWEEN),
    "nothing": (
        "what is clipped has no gradients: the list of parameters is empty, or of another model",
        "Give `model.parameters()` itself to `clip_grad_norm_`: a generator that was kept in a variable is used up "
        "after the first use.",
    ),
    "scaled": (
        "a limit of {limit} is applied to gradients that the `GradScaler` has multiplied by {scale}, so that all are "
        "cut down",
        "Call `scaler.unscale_(optimizer)` before clipping.",
    ),
}
