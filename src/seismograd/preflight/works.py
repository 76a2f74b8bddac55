"""Forward, loss and backward run, and everything in them is finite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from seismograd.preflight.scene import Failure, LossError, Scene, finding
from seismograd.records import Finding, Severity, Where


class Works:
    """Runs the forward pass, the loss and backward once, and a few steps after that.

    An exception becomes a finding with the user's line: `label-out-of-range` where a class does not exist,
    `loss-input-mismatch` where the loss refuses what it gets, `detached-loss` where it has no graph, else
    `blind-probe`. Whatever is not finite is a finding of its own, with the op that made it.
    """

    name: ClassVar[str] = "works"
    trains: ClassVar[bool] = True
    watched: ClassVar[bool] = True

    def check(self, scene: Scene) -> Iterable[Finding]:
        if scene.failure is not None:
            return [_told(scene.failure)]
        return scene.told(
            "nonfinite-input",
            "nonfinite-activation",
            "nonfinite-loss",
            "nonfinite-gradient",
            "nonfinite-parameter",
            "precision-underflow",
            "gradient-explosion",
            "gradient-vanishing",
        )


_WORDS = {"forward": "The model", "loss": "The loss function", "backward": "The backward pass"}


def _told(failure: Failure) -> Finding:
    text = " ".join(str(failure.error).split())
    kind, advice = "blind-probe", "Run the line on one batch by hand: nothing else can be checked before it works."
    if failure.phase == "loss":
        kind, advice = "loss-input-mismatch", "Compare shape and dtype of the output and the target with what it wants."
    if failure.phase == "loss" and ("out of bounds" in text or "cur_target" in text):
        kind, advice = "label-out-of-range", "Labels count from 0 to the number of outputs minus 1: move or widen them."
    if isinstance(failure.error, LossError):
        kind = "loss-input-mismatch" if "shape" in text else "detached-loss"
        advice = "Return the loss as a tensor of one number, without .item(), .detach() or numpy."
        message = f"{text[0].upper()}{text[1:]}."
    else:
        inside = f" in `{failure.module}`" if failure.module else ""
        message = f"{_WORDS[failure.phase]} raises {type(failure.error).__name__}{inside}: {text[:300]}"
    spot, module = failure.spot, failure.module or None
    at = Where(module, phase=failure.phase)
    if spot is not None:
        at = Where(module, phase=failure.phase, file=spot.file, line=spot.line, code=spot.source)
    evidence = {"exception": type(failure.error).__name__, "phase": failure.phase}
    return finding(kind, Severity.CRITICAL, message, evidence, [advice], where=at)
