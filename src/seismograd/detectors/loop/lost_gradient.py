"""`lost-gradient`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.orders import at, in_words, named, whose
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LostGradient:
    """Gradients are cleared after backward and before the step that should use them.

    Why it matters
    --------------
    The step runs without gradients: nothing is learned. At most weight decay and old momentum still move the weights.

    How it is judged
    ----------------
    For each optimizer: a backward gave it gradients, and when its step began they were all None or zero, for
    `in_a_row` steps one after another. A batch that is thrown away now and then does not count, nor does a backward
    that was made for something else (an attack, SAM) as long as another one comes before the step.

    What to try
    -----------
    The order `zero_grad()`, forward, `backward()`, `step()`.

    An example
    ----------

        loss.backward()
        optimizer.zero_grad()    # belongs before backward, or after the step
        optimizer.step()
    """

    id: ClassVar[str] = "lost-gradient"
    needs: ClassVar[tuple[str, ...]] = ("facts/order",)
    follows: ClassVar[tuple[str, ...]] = ()

    in_a_row: int = 3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_row")

    def __init__(self, detector: LostGradient) -> None:
        self._detector = detector
        self._row: dict[int, int] = {}

    def check(self, reading: Reading) -> Finding | None:
        facts, finding = reading.facts["order"], None
        for turn in facts["turns"]:
            owner = turn["optimizer"]
            if not turn["empty"]:
                if turn["backwards"]:
                    self._row[owner] = 0
                continue
            self._row[owner] = self._row.get(owner, 0) + 1
            if self._row[owner] >= self._detector.in_a_row:
                finding = self._found(reading, facts, turn, self._row[owner])
        return finding

    def _found(self, reading: Reading, facts: Mapping[str, Any], turn: Mapping[str, Any], row: int) -> Finding:
        return found(
            self._detector,
            reading,
            Severity.CRITICAL,
            f"The gradients are cleared after backward and before the step: the last {row} steps of "
            f"{named(facts, turn)} ran without any gradient, and learned nothing.",
            {"order": turn["order"], "steps_in_a_row": row, **whose(facts, turn)},
            where=at(turn, "zero_grad", "step"),
            advice=(
                f"Clear the gradients before `loss.backward()` or after `optimizer.step()`, never between them (the "
                f"loop does {in_words(turn['order'])}).",
            ),
        )
