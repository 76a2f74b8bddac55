"""`nonfinite-gradient`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.numerics.origins import UPSTREAM, following, moment, own, told
from seismograd.detectors.tables import column
from seismograd.detectors.wording import found, names, number, parameter
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class NonfiniteGradient:
    """The gradient of at least one parameter holds NaN or infinite values.

    Why it matters
    --------------
    The next optimizer step writes them into the weights, and Adam keeps them in its state for ever. The loss of that
    very step may still look fine.

    How it is judged
    ----------------
    By the norm of all gradients at every reading; the parameters and the number of bad elements come from a look at
    each element. Steps that a `GradScaler` skips are no fault: that is how it finds its scale. If the step was run
    again, and backward made it, the finding names the op whose derivative it was and its line; if it came from
    elsewhere, it follows from what did.

    What to try
    -----------
    If the loss was finite, backward made it: the square root or a norm at exactly zero, a division, `where` over an
    undefined branch, a power of a negative number. Add a small epsilon inside the square root or clamp the input of
    the logarithm. If gradients had grown before, lower the learning rate or clip.

    An example
    ----------
    A distance of zero: its value is 0, its derivative infinite:

        distance = (a - b).square().sum(1).sqrt()           # a == b: the gradient is NaN
        distance = ((a - b).square().sum(1) + 1e-12).sqrt()  # instead
    """

    id: ClassVar[str] = "nonfinite-gradient"
    needs: ClassVar[tuple[str, ...]] = ()  # a second run may know of it where no norm was read
    follows: ClassVar[tuple[str, ...]] = (
        "nonfinite-input",
        "nonfinite-parameter",
        "nonfinite-activation",
        "nonfinite-loss",
        "missing-zero-grad",
        *UPSTREAM,
    )

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: NonfiniteGradient) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        norm, origin = reading.scalars.get("grad/norm", 0.0), own(NonfiniteGradient.id, reading)
        if origin is None and (-math.inf < norm < math.inf or "amp-skipped" in reading.marks):
            return None
        bad, total, nan, inf = _count(reading)
        if origin is None and bad is not None and not bad:
            return None  # every gradient is finite: only their sum is too large for a float, which is another fault
        evidence: dict[str, Any] = {"norm": float(norm), "limit": "finite"}
        loss = reading.scalars.get("loss", math.nan)
        finite_loss = math.isfinite(loss)
        if finite_loss:
            evidence["loss"] = float(loss)
        said = f"while the loss was finite ({number(loss)})" if finite_loss else "after a loss that was not finite"
        if "loss" not in reading.scalars:
            said = "in backward"
        if not bad:
            first = f"The gradient's norm is {number(norm)} at step {reading.step}, {said}"
            if origin is not None and math.isfinite(norm):
                first = f"Backward made {number(origin.value)} at step {reading.step}, {said}"
            held, where = "", Where(phase="backward")
        else:
            evidence |= {"first": bad[0], "parameters": len(bad), "of": total}
            held = f", in {names(bad)}"
            if nan or inf:
                evidence |= {"nan": nan, "inf": inf}
                held = f": {nan} NaN and {inf} Inf values, in {names(bad)}"
            first = f"The gradients of {len(bad)} of {total} parameters are not finite at step {reading.step}, {said}"
            where = parameter(bad[0], "backward")
        skip = "Until it is mended, skip steps whose gradient norm is not finite, so that the weights survive."
        if origin is not None:
            message, known, advice, where = told(origin, first + moment(origin), [skip], reading.step)
            evidence = {**known, **evidence}
        elif finite_loss:
            message = f"{first}{held}."
            advice = [
                "Backward made it out of a finite loss: look for sqrt, norm, division or log at exactly zero, and add"
                " an epsilon (1e-8) inside it.",
                skip,
            ]
        else:
            message = f"{first}{held}."
            advice = ["Mend the loss first: a loss that is not finite has no finite gradient."]
        linked, advice = following(NonfiniteGradient.id, reading, advice)
        evidence |= linked
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)


def _count(reading: Reading) -> tuple[list[str] | None, int, int, int]:
    """The bad parameters in order (None: not known), the number of all, and the NaN and Inf elements."""
    gradients, table = reading.tensors.get("gradient"), reading.tensors.get("nonfinite")
    if table is not None:
        nan, inf = column(table, "nan"), column(table, "inf")
        if nan is not None and inf is not None:
            bad = [name for name, count in zip(table.names, nan + inf, strict=True) if count > 0]
            total = len(gradients) if gradients is not None else len(table)
            return bad, max(total, len(bad)), int(nan.sum()), int(inf.sum())
    norms = column(gradients, "norm") if gradients is not None else None
    if gradients is None or norms is None:
        return None, 0, 0, 0
    bad = [name for name, norm in zip(gradients.names, norms, strict=True) if not math.isfinite(norm)]
    return bad, len(gradients), 0, 0
