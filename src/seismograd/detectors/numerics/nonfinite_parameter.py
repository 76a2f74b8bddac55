"""`nonfinite-parameter`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.numerics.origins import UPSTREAM, following, own, told
from seismograd.detectors.tables import column
from seismograd.detectors.wording import found, names, parameter
from seismograd.records import Finding, Reading, Severity, TensorStats, Where


@dataclass(frozen=True)
class NonfiniteParameter:
    """A weight or buffer holds NaN or infinite values.

    Why it matters
    --------------
    The model is lost: no later step can bring such a weight back, and every checkpoint from here on is worthless.

    How it is judged
    ----------------
    By the parameters themselves, element by element. There is no limit to set. Where the update that made them so is
    known, the finding names it: its step, and whether gradient, state or learning rate was to blame.

    What to try
    -----------
    Go back to the last checkpoint with finite weights. Then stop the cause: a gradient that was not finite was
    stepped on (skip such steps), the learning rate is far too high, or the weights were already bad when loaded.

    An example
    ----------
    A step is taken on a gradient that is not finite:

        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm.isfinite():  # was missing: one such step and every weight is NaN
            optimizer.step()
    """

    id: ClassVar[str] = "nonfinite-parameter"
    needs: ClassVar[tuple[str, ...]] = ()  # a second run may know of it where no table was read
    follows: ClassVar[tuple[str, ...]] = (
        "nonfinite-input",
        "nonfinite-activation",
        "nonfinite-gradient",
        "nonfinite-loss",
        "missing-zero-grad",
        *UPSTREAM,
    )

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: NonfiniteParameter) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        table, origin = reading.tensors.get("nonfinite_parameter"), own(NonfiniteParameter.id, reading)
        bad, nans, infs = _count(table) if table is not None else ([], 0, 0)
        if not bad and origin is None:
            return None
        tables = (reading.tensors.get("parameter"), reading.tensors.get("gradient"))
        total = max([len(bad), *(len(known) for known in tables if known is not None)])
        evidence: dict[str, Any] = {"limit": "finite"}
        said, where = f"Parameters are not finite at step {reading.step}", Where()
        if bad:
            said = (
                f"{len(bad)} of {total} parameters are not finite at step {reading.step}:"
                f" {nans} NaN and {infs} Inf values, in {names(bad)}"
            )
            evidence |= {"first": bad[0], "parameters": len(bad), "of": total, "nan": nans, "inf": infs}
            where = parameter(bad[0])
        message, back = (
            f"{said}.",
            f"Go back to a checkpoint of before step {reading.step}; these weights cannot recover.",
        )
        if origin is not None:
            message, known, advice, where = told(origin, said, [back], reading.step)
            evidence = {**known, **evidence}
        elif reading.step == 0:
            advice = [
                "The weights were not finite before the first step: check the initialisation or the checkpoint loaded."
            ]
        else:
            advice = [back, "Skip optimizer steps whose gradient norm is not finite."]
        linked, advice = following(NonfiniteParameter.id, reading, advice)
        evidence |= linked
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)


def _count(table: TensorStats) -> tuple[list[str], int, int]:
    """The bad parameters in order, and their NaN and Inf elements."""
    nan, inf = column(table, "nan"), column(table, "inf")
    if nan is None or inf is None:
        return [], 0, 0
    bad = [name for name, count in zip(table.names, nan + inf, strict=True) if count > 0]
    return bad, int(nan.sum()), int(inf.sum())
