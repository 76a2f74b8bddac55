"""`accumulation-mismatch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.orders import at, named, whose
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity

_SCALE_FREE = ("Ada", "RMSprop", "Rprop", "Lion", "LAMB", "Lamb", "Muon", "Prodigy")
"""A gradient times N makes about the same update with these."""

_OF_TRAINERS = (
    "The Trainer takes the loss of a model whose `forward` has **kwargs for one that is divided already, though this"
    " one is a mean over its own batch: set `trainer.model_accepts_loss_kwargs = False` before `trainer.train()`."
)


@dataclass(frozen=True)
class AccumulationMismatch:
    """Gradients of several batches are accumulated, but thrown away between them, not divided, or divided twice.

    Why it matters
    --------------
    Cleared with every batch and used only with every N-th, all but one of N batches are computed for nothing. Added up
    without dividing the loss by N, gradients are N times as large: the learning rate is in effect N times as high,
    clipping N times as tight, and both change with N. Divided by the loop and by its framework, they are N times too
    small.

    How it is judged
    ----------------
    Thrown away: in `in_a_row` steps one after another the same number of batches had gone through backward and were
    cleared before the last one, which alone was used (two steps are enough where it is `many` or more). The weights
    did not move in between (SAM does that), each backward had a batch of its own (several losses of one batch are
    fine), all were called from one line, and no gradient of an input was wanted (attacks).

    Not divided: in `steady` steps the same number of backwards, two or more, all from one line, each with a batch of
    its own and through the same parameters, from a loss of torch's that is a mean and that nothing divides. Optimizers
    of Adam's kind do not care about the scale; with them it is `info`, unless gradients are clipped.

    Divided twice: in as many steps, such backwards of a loss that two divisions one after the other each divide by
    their number, of `twice` and more: half of a half may be meant.

    What to try
    -----------
    `(loss / accumulate).backward()`, and `zero_grad()` only together with `step()`.

    An example
    ----------

        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()                        # throws away what was accumulated
            (loss_fn(model(x), y) / 4).backward()
            if (i + 1) % 4 == 0:
                optimizer.step()                         # zero_grad() belongs here
    """

    id: ClassVar[str] = "accumulation-mismatch"
    needs: ClassVar[tuple[str, ...]] = ("facts/order",)
    follows: ClassVar[tuple[str, ...]] = ()

    in_a_row: int = 3
    many: int = 8
    steady: int = 4
    twice: int = 3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_added", "_detector", "_divided", "_thrown")

    def __init__(self, detector: AccumulationMismatch) -> None:
        self._detector = detector
        self._thrown: dict[int, tuple[int, int]] = {}  # by optimizer: how many batches, in how many steps in a row
        self._added: dict[int, tuple[int, int]] = {}
        self._divided: dict[int, tuple[int, int]] = {}

    def check(self, reading: Reading) -> Finding | None:
        facts, limits, finding = reading.facts["order"], self._detector, None
        for turn in facts["turns"]:
            owner, thrown = turn["optimizer"], turn["thrown"]
            if turn["handmade"] or turn["moved"] or turn["empty"] or not turn["one_line"]:
                thrown = 0
            row = _row(self._thrown, owner, thrown)
            needed = limits.in_a_row + 2 * facts["several"]
            if thrown and row >= (2 if thrown >= limits.many and not facts["several"] else needed):
                finding = self._thrown_away(reading, facts, turn, row)
            row = _row(self._added, owner, turn["kept"] if _is_sum_of_means(turn) else 0)
            if row >= limits.steady and finding is None and self._added[owner][0]:
                finding = self._not_divided(reading, facts, turn, row)
            row = _row(self._divided, owner, turn["kept"] if self._is_divided_twice(turn) else 0)
            if row >= limits.steady and finding is None and self._divided[owner][0]:
                finding = self._divided_twice(reading, facts, turn, row)
        return finding

    def _is_divided_twice(self, turn: Mapping[str, Any]) -> bool:
        count = turn["kept"]
        return count >= self._detector.twice and turn.get("divisors", ()).count(count) >= 2 and _is_steady(turn)

    def _thrown_away(self, reading: Reading, facts: Mapping[str, Any], turn: Mapping[str, Any], row: int) -> Finding:
        thrown, batches = turn["thrown"], turn["thrown"] + turn["kept"]
        return found(
            self._detector,
            reading,
            Severity.WARNING,
            f"Accumulated gradients are thrown away: {batches} batches go through backward for each step of "
            f"{named(facts, turn)}, but `zero_grad` is called between them, and {thrown} of {batches} count for "
            f"nothing ({row} steps in a row).",
            {"thrown": thrown, "batches": batches, "steps_in_a_row": row, "order": turn["order"], **whose(facts, turn)},
            where=at(turn, "zero_grad", "step"),
            advice=(
                "Call `optimizer.zero_grad()` only together with `optimizer.step()`, and divide the loss: "
                f"`(loss / {batches}).backward()`.",
                "If no accumulation was meant, call `optimizer.step()` with every batch: it may be indented too far.",
            ),
        )

    def _not_divided(self, reading: Reading, facts: Mapping[str, Any], turn: Mapping[str, Any], row: int) -> Finding:
        count, scale_free = turn["kept"], _is_scale_free(turn)
        effect = (
            f"{turn['kind']} does not mind the scale of a gradient, so that it matters little here"
            if scale_free
            else f"gradients, and with them each step, are {count} times as large as those of one batch"
        )
        advice = [
            f"Divide the loss: `(loss / {count}).backward()`.",
            "If the sum is meant, this can be left: the learning rate is then one for the sum.",
        ]
        if facts.get("framework") == "transformers":
            advice.insert(0, _OF_TRAINERS)
        return found(
            self._detector,
            reading,
            Severity.INFO if scale_free else Severity.WARNING,
            f"The gradients of {count} batches are added up for each step, and the loss, a mean, is not divided by "
            f"{count}: {effect}.",
            {"batches": count, "steps_in_a_row": row, "order": turn["order"], **whose(facts, turn)},
            where=at(turn, "backward"),
            advice=advice,
        )

    def _divided_twice(self, reading: Reading, facts: Mapping[str, Any], turn: Mapping[str, Any], row: int) -> Finding:
        count, scale_free = turn["kept"], _is_scale_free(turn)
        effect = (
            f"{turn['kind']} does not mind the scale of a gradient, so that it matters little here"
            if scale_free
            else f"gradients, and with them each step, are {count} times too small"
        )
        return found(
            self._detector,
            reading,
            Severity.INFO if scale_free else Severity.WARNING,
            f"The gradients of {count} batches are added up for each step, and the loss is divided by {count} twice: "
            f"{effect}.",
            {"batches": count, "divided_by": count * count, "steps_in_a_row": row, **whose(facts, turn)},
            where=at(turn, "backward"),
            advice=(
                "Divide it once: `accelerator.accumulate`, `accumulate_grad_batches` of Lightning and"
                " `gradient_accumulation_steps` of a Trainer divide the loss by themselves.",
            ),
        )


def _is_scale_free(turn: Mapping[str, Any]) -> bool:
    return any(kind in turn["kind"] for kind in _SCALE_FREE) and not turn["clips"]


def _is_sum_of_means(turn: Mapping[str, Any]) -> bool:
    return bool(turn["mean"] and _is_steady(turn))


def _is_steady(turn: Mapping[str, Any]) -> bool:
    """Whether these are several batches, each with a backward of its own, from one line and of one loss."""
    own_batches = turn["kept"] >= 2 and turn["fresh"] == turn["kept"]
    return bool(own_batches and turn["alike"] and turn["one_line"] and turn["whole"] and not turn["handmade"])


def _row(rows: dict[int, tuple[int, int]], owner: int, count: int) -> int:
    """How often in a row this optimizer had this count."""
    before, row = rows.get(owner, (0, 0))
    row = row + 1 if count == before else 1
    rows[owner] = (count, row)
    return row
