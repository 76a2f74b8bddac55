"""`nonfinite-loss`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.numerics.origins import UPSTREAM, following, moment, own, told
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class NonfiniteLoss:
    """The loss is NaN or infinite.

    Why it matters
    --------------
    Every gradient of a NaN loss is NaN, and one optimizer step writes it into every weight. Nothing that comes after
    has any value, while the loop goes on as if all were well.

    How it is judged
    ----------------
    By the loss itself, at every reading. There is no limit to set. If the step was run again, and an op of the loss
    made it, the finding names that op and its line; if it came from elsewhere, it follows from what did. The Trainer of
    transformers does not log such losses unless told to (`logging_nan_inf_filter`): the finding then says so.

    What to try
    -----------
    Look at the first bad step, not at the later ones. If loss or gradients grew before it, lower the learning rate or
    clip the gradients. If all was calm, look for `log(0)`, a division by zero, the square root of zero, or NaN in
    that batch.

    An example
    ----------
    A logarithm of a probability that has become 0:

        loss = -(p.log() * target).sum(1).mean()            # log(0)
        loss = nn.functional.cross_entropy(logits, target)  # instead, on the logits
    """

    id: ClassVar[str] = "nonfinite-loss"
    needs: ClassVar[tuple[str, ...]] = ()  # a second run may know of it where the loss was not read
    follows: ClassVar[tuple[str, ...]] = (
        "nonfinite-input",
        "nonfinite-parameter",
        "nonfinite-activation",
        "nonfinite-gradient",
        "missing-zero-grad",
        *UPSTREAM,
    )

    def start(self) -> _Checker:
        return _Checker(self)


_HIDDEN = (
    "The Trainer's own log does not show it: with `logging_nan_inf_filter=True`, its default, it writes a mean of"
    " earlier losses, or 0, in place of one that is not finite. `TrainingArguments(logging_nan_inf_filter=False)`"
    " shows it."
)


class _Checker:
    __slots__ = ("_before", "_detector", "_last", "_step")

    def __init__(self, detector: NonfiniteLoss) -> None:
        self._detector = detector
        self._last, self._before, self._step = math.nan, math.nan, -1

    def check(self, reading: Reading) -> Finding | None:
        loss, origin = reading.scalars.get("loss"), own(NonfiniteLoss.id, reading)
        evidence: dict[str, Any] = {"limit": "finite"} if loss is None else {"loss": float(loss), "limit": "finite"}
        bad = loss is not None and not math.isfinite(loss)
        if loss is not None and bad:
            word = number(loss)
        elif origin is not None:
            word = number(origin.value)
        else:
            if loss is not None:
                self._before, self._last, self._step = self._last, loss, reading.step
            return None
        if not bad:
            said, advice = f"{word} was made in the loss at step {reading.step}", []
        elif self._step < 0:
            said = f"The loss is {word} at step {reading.step}, and was never finite"
            advice = [
                "Nothing has been trained yet: check the first batch for NaN, and the loss for log(0), a division by"
                " zero or labels out of range; a lower learning rate will not help.",
            ]
        else:
            evidence |= {"last_finite": self._last, "last_finite_step": self._step}
            said = f"The loss is {word} at step {reading.step}; it was {number(self._last)} at step {self._step}"
            if abs(self._last) > 4 * abs(self._before) > 0:
                advice = [
                    f"The loss was already growing ({number(self._before)}, then {number(self._last)}): lower the"
                    " learning rate about 10 times, or clip gradients with `clip_grad_norm_`.",
                ]
            else:
                advice = [
                    f"It came without warning: look in the batch of step {reading.step} for NaN, and in the loss for"
                    " log(0), sqrt(0) or a division by zero.",
                    "If it comes back on other batches, lower the learning rate or clip gradients.",
                ]
        back = f"Go back to a checkpoint of before step {reading.step}: a step on a loss of {word} ruins all weights."
        message, where = f"{said}.", Where(phase="forward")
        if origin is not None:
            message, known, advice, where = told(origin, said + moment(origin), [back], reading.step)
            evidence = {**known, **evidence}
        else:
            linked, advice = following(NonfiniteLoss.id, reading, [*advice, back])
            evidence |= linked
        surroundings = reading.facts.get("surroundings", {})
        if bad and surroundings.get("hides_bad_losses"):
            evidence["hidden_by"] = "logging_nan_inf_filter"
            advice = [*advice, _HIDDEN]
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)
