"""`nonfinite-input`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.numerics.origins import moment, own, told
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class NonfiniteInput:
    """A batch that reached the model or the loss holds NaN or infinite values.

    Why it matters
    --------------
    One bad sample makes the loss of the whole batch NaN, and with it every gradient and, one step later, every weight.
    The model is not at fault, and no learning rate helps.

    How it is judged
    ----------------
    When a step went bad, its inputs and targets are looked at element by element, before any op is suspected. There is
    no limit to set. Needs the replay, which is on unless `replay=False`.

    What to try
    -----------
    Look at the sample that is named. Leave such samples out or mend them in the Dataset (`torch.isfinite(x).all()`).
    If the raw data is clean, look at what is done to it: a feature that is divided by a standard deviation of zero, a
    logarithm, a cast to float16.

    An example
    ----------
    A constant column is standardised:

        x = (x - x.mean(0)) / x.std(0)                    # 0 / 0 in that column
        x = (x - x.mean(0)) / x.std(0).clamp_min(1e-8)    # instead
    """

    id: ClassVar[str] = "nonfinite-input"
    needs: ClassVar[tuple[str, ...]] = ("origin",)
    follows: ClassVar[tuple[str, ...]] = ()

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: NonfiniteInput) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        origin = own(NonfiniteInput.id, reading)
        if origin is None:
            return None
        skip = "Until it is mended, skip such batches before the model sees them, so that the weights survive."
        why, evidence, advice, where = told(origin, "", [skip], reading.step)
        message = f"At step {reading.step}{moment(origin)}, {why}"
        evidence = {**evidence, "limit": "finite"}
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)
