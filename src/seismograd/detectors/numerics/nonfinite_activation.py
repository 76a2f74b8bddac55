"""`nonfinite-activation`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.numerics.origins import UPSTREAM, made, moment, own, told
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class NonfiniteActivation:
    """An op of the forward pass made NaN or infinite values out of finite ones.

    Why it matters
    --------------
    From there it spreads to the loss, to all gradients and to all weights. What fails later is only the last to be
    touched; this is the op to mend.

    How it is judged
    ----------------
    When a step went bad, it is run again with every op looked at, and the bad value of the loss or the gradient is
    followed back to the op that made it. An infinity that is meant and does no harm, such as the -Inf of an attention
    mask under softmax, is none. There is no limit to set. Needs the replay, which is on unless `replay=False`.

    What to try
    -----------
    The finding says which op it is, on which line, and what was special about its inputs: zero under a logarithm or a
    division, a softmax row that is masked completely, the variance of one element, numbers too large for float16.
    Keep such inputs away from the op (clamp, epsilon), or use the form that is stable (`log_softmax`, `logsumexp`).

    An example
    ----------
    The standard deviation of a group of one:

        z = (h - h.mean(1, keepdim=True)) / h.std(1, keepdim=True)                     # one element: NaN
        z = (h - h.mean(1, keepdim=True)) / (h.std(1, keepdim=True, correction=0) + 1e-6)  # instead
    """

    id: ClassVar[str] = "nonfinite-activation"
    needs: ClassVar[tuple[str, ...]] = ("origin",)
    follows: ClassVar[tuple[str, ...]] = (
        "nonfinite-input",
        "missing-zero-grad",
        *UPSTREAM,
    )

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: NonfiniteActivation) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        origin = own(NonfiniteActivation.id, reading)
        if origin is None:
            return None
        skip = "Until it is mended, skip steps whose loss is not finite, so that the weights survive."
        said = made(origin)
        said = f"{said[:1].upper()}{said[1:]} at step {reading.step}{moment(origin)}"
        message, evidence, advice, where = told(origin, said, [skip], reading.step)
        evidence = {**evidence, "limit": "finite"}
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)
