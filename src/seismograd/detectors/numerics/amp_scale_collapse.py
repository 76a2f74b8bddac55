"""`amp-scale-collapse`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class AmpScaleCollapse:
    """The `GradScaler` keeps skipping steps and halving its scale, far beyond its normal settling.

    Why it matters
    --------------
    Skipped steps train nothing. A scaler that skips one step after another means that gradients are not finite at any
    scale: the loop runs, the weights stand still.

    How it is judged
    ----------------
    A few skips at the start and one after each growth of the scale are how a scaler works. It has collapsed after
    `consecutive` skips in a row once steps had succeeded, after `settling` in a row when none ever did, or when it
    still skips (`recent` of the last 32) at a scale below `lowest`.

    What to try
    -----------
    Find the op that makes NaN or Inf in half precision: run it in float32 (`torch.autocast(enabled=False)`), use
    bfloat16, lower the learning rate, and check that the loss is finite without autocast.

    An example
    ----------
    A mask written for float32 in a model that runs in float16:

        scores = scores.masked_fill(mask, -1e9)                             # beyond float16: -inf, and NaN in backward
        scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)    # instead
    """

    id: ClassVar[str] = "amp-scale-collapse"
    needs: ClassVar[tuple[str, ...]] = ("amp/scale",)
    follows: ClassVar[tuple[str, ...]] = (
        "nonfinite-input",
        "nonfinite-activation",
        "nonfinite-loss",
        "nonfinite-parameter",
        "lr-too-high",
        "lr-jump",
        "loss-explosion",
        "gradient-explosion",
    )

    consecutive: int = 10
    settling: int = 20
    lowest: float = 1.0
    recent: int = 4

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_first", "_in_a_row", "_recent", "_skips", "_succeeded")

    def __init__(self, detector: AmpScaleCollapse) -> None:
        self._detector = detector
        self._in_a_row, self._succeeded, self._first = 0, False, 0.0
        self._recent: deque[bool] = deque([False] * 32, maxlen=32)
        self._skips = 0

    def check(self, reading: Reading) -> Finding | None:
        skipped = "amp-skipped" in reading.marks
        self._skips += skipped - self._recent[0]
        self._recent.append(skipped)
        scale = reading.scalars["amp/scale"]
        self._first = self._first or scale
        if not skipped:
            self._succeeded, self._in_a_row = True, 0
            return None
        self._in_a_row += 1
        limits = self._detector
        allowed = limits.consecutive if self._succeeded else limits.settling
        tiny = scale < min(limits.lowest, self._first) and self._skips >= limits.recent
        if self._in_a_row < allowed and not tiny:
            return None
        message = (
            f"The GradScaler has skipped {self._in_a_row} steps in a row, {self._skips} of the last 32; its scale"
            " fell from"
            f" {number(self._first)} to {number(scale)} at step {reading.step}."
        )
        evidence = {
            "scale": float(scale),
            "first_scale": float(self._first),
            "skipped_in_a_row": self._in_a_row,
            "skipped_of_32": self._skips,
            "limit": limits.lowest if self._in_a_row < allowed else allowed,
        }
        advice = [
            "Gradients are not finite at any scale, so the scale is not the fault: run one step without"
            " autocast, and see"
            " whether loss and gradients are finite.",
            "Use `torch.autocast(dtype=torch.bfloat16)` without a scaler, or keep the overflowing op in float32.",
        ]
        return found(limits, reading, Severity.CRITICAL, message, evidence, advice=advice)
