"""`nonfinite-parameter`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.tables import column
from seismograd.detectors.wording import found, names, parameter
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class NonfiniteParameter:
    """A weight or buffer holds NaN or infinite values.

    Why it matters
    --------------
    The model is lost: no later step can bring such a weight back, and every checkpoint from here on is worthless.

    How it is judged
    ----------------
    By the parameters themselves, element by element. There is no limit to set.

    What to try
    -----------
    Go back to the last checkpoint with finite weights. Then stop the cause: a gradient that was not finite was
    stepped on (skip such steps), the learning rate is far too high, or the weights were already bad when loaded.
    """

    id: ClassVar[str] = "nonfinite-parameter"
    needs: ClassVar[tuple[str, ...]] = ("nonfinite_parameter",)
    follows: ClassVar[tuple[str, ...]] = (
        "nonfinite-input",
        "nonfinite-activation",
        "nonfinite-gradient",
        "nonfinite-loss",
        "lr-too-high",
        "lr-jump",
        "bad-initialization",
        "loss-explosion",
        "gradient-explosion",
    )

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: NonfiniteParameter) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        table = reading.tensors["nonfinite_parameter"]
        nan, inf = column(table, "nan"), column(table, "inf")
        if nan is None or inf is None:
            return None
        bad = [name for name, count in zip(table.names, nan + inf, strict=True) if count > 0]
        if not bad:
            return None
        tables = (reading.tensors.get("parameter"), reading.tensors.get("gradient"))
        total = max([len(bad), *(len(known) for known in tables if known is not None)])
        nans, infs = int(nan.sum()), int(inf.sum())
        message = (
            f"{len(bad)} of {total} parameters are not finite at step {reading.step}:"
            f" {nans} NaN and {infs} Inf values, in {names(bad)}."
        )
        evidence = {"first": bad[0], "parameters": len(bad), "of": total, "nan": nans, "inf": infs, "limit": "finite"}
        if reading.step == 0:
            advice = [
                "The weights were not finite before the first step: check the initialisation or the checkpoint loaded."
            ]
        else:
            advice = [
                f"Go back to a checkpoint of before step {reading.step}; these weights cannot recover.",
                "Skip optimizer steps whose gradient norm is not finite.",
            ]
        return found(
            self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=parameter(bad[0])
        )
