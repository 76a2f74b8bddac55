"""`missing-zero-grad`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.orders import at, in_words, named, whose
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class MissingZeroGrad:
    """Gradients of earlier steps are still there when backward starts, step after step: they pile up.

    Why it matters
    --------------
    `backward()` adds to what is there. Without a clearing every step follows the sum of all gradients so far, which
    is a momentum that never fades: the run overshoots, swings, and mostly diverges.

    How it is judged
    ----------------
    For each optimizer, by the gradients themselves: between two of its steps they were neither set to None nor
    written to by anything but backward, were not zero when backward began, and backward added to them. `in_a_row`
    such steps one after another. It does not matter who clears them, where, or by which call. What another model's
    backward leaves there is fine as long as it is gone before the step that uses them, and so is accumulation: it
    ends with a step.

    What to try
    -----------
    `optimizer.zero_grad()` in every iteration, before `backward()`; under accumulation right after each `step()`.
    Where it is called already: on the optimizer or model that holds these parameters, and with every batch.

    An example
    ----------
    Cleared once in each epoch:

        for epoch in range(10):
            optimizer.zero_grad()          # belongs into the inner loop
            for x, y in loader:
                loss_fn(model(x), y).backward()
                optimizer.step()
    """

    id: ClassVar[str] = "missing-zero-grad"
    needs: ClassVar[tuple[str, ...]] = ("facts/order",)
    follows: ClassVar[tuple[str, ...]] = ()

    in_a_row: int = 4

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_row")

    def __init__(self, detector: MissingZeroGrad) -> None:
        self._detector = detector
        self._row: dict[int, int] = {}

    def check(self, reading: Reading) -> Finding | None:
        facts, finding = reading.facts["order"], None
        for turn in facts["turns"]:
            owner = turn["optimizer"]
            if not (turn["whole"] and turn["uncleared"]):
                self._row[owner] = 0
                continue
            self._row[owner] = self._row.get(owner, 0) + 1
            if self._row[owner] >= self._detector.in_a_row:
                finding = self._found(reading, facts, turn, self._row[owner])
        return finding

    def _found(self, reading: Reading, facts: Mapping[str, Any], turn: Mapping[str, Any], row: int) -> Finding:
        message = (
            f"The gradients of earlier steps are still there when backward starts: nothing has cleared those of "
            f"{named(facts, turn)} in the last {row} steps, so that each step follows the sum of all gradients so far."
        )
        if turn["strange"]:
            message += " `zero_grad` is called, but on another optimizer."
        elif turn["clears"]:
            message += f" `zero_grad` was called {turn['clears']} times in {turn['steps']} steps."
        evidence: dict[str, Any] = {"order": turn["order"], "steps_in_a_row": row, **whose(facts, turn)}
        if turn["left"] is not None:
            evidence["norm_left"] = turn["left"]
            message += f" Their norm was {number(turn['left'])} before this backward."
        return found(
            self._detector,
            reading,
            Severity.CRITICAL,
            message,
            evidence,
            where=at(turn, "step", "backward"),
            advice=(
                "Call `optimizer.zero_grad()` in every iteration, before `loss.backward()` "
                f"(the loop does {in_words(turn['order'])}).",
                "If gradients are accumulated on purpose, call `optimizer.step()` only with every N-th batch, and "
                "`optimizer.zero_grad()` right after it.",
            ),
        )
