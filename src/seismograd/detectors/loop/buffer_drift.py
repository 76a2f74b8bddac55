"""`buffer-drift`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.wording import found, names, number
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class BufferDrift:
    """The running statistics of a frozen part keep moving: its weights are frozen, its batch norm is not.

    Why it matters
    --------------
    `requires_grad_(False)` stops gradients, not running statistics. In training mode batch norm goes on learning them
    from the new data, so that the part no longer computes what it was trained to compute, and evaluation differs from
    training.

    How it is judged
    ----------------
    Norms in training mode count whose own weights are frozen, as is the layer before them, and whose weights do not
    change in any other way (as those of a moving average do). If over `steps` steps or more the mean of one of them has
    moved by `shift` of its deviation, or its variance by a factor of e to the power of `shift`, that is a warning;
    after `small` steps if the statistics were still those of a norm that has never seen data: it may only be getting
    its first ones. If it moved less, it is only mentioned, after `small` steps.

    What to try
    -----------
    Put the frozen part into evaluation mode after each `model.train()`.

    An example
    ----------
    The last line puts the norms of the backbone into training mode too; `model.backbone.eval()` has to follow it:

        for parameter in model.backbone.parameters():
            parameter.requires_grad = False
        model.train()
    """

    id: ClassVar[str] = "buffer-drift"
    needs: ClassVar[tuple[str, ...]] = ("facts/modes",)
    follows: ClassVar[tuple[str, ...]] = ()

    steps: int = 5
    small: int = 20
    shift: float = 0.2

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: BufferDrift) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        limits = self._detector
        for moved in reading.facts["modes"].get("moved", ()):
            shift, ratio, steps = moved["shift"], moved["ratio"], moved["steps"]
            if moved["weights"] or not (shift or ratio):
                continue
            far = max(shift, ratio) >= limits.shift
            if steps < (limits.steps if far and not moved["fresh"] else limits.small):
                continue
            norms = moved["norms"]
            one = len(norms) == 1
            message = (
                f"{names(norms)} {'is' if one else 'are'} frozen, but in training mode: over {steps} steps the running"
                f" mean has moved by {number(shift)} of its deviation"
                f" and the variance by a factor of {number(2.718281828**ratio)}."
            )
            evidence = {
                "shift": shift,
                "log_ratio": ratio,
                "limit": limits.shift,
                "steps": steps,
                "norms": norms[:16],
                "fresh": moved["fresh"],
            }
            part = norms[0].rpartition(".")[0].partition(".")[0]
            advice = [
                f"Put the frozen part into evaluation mode after `model.train()`: `model.{part}.eval()`."
                if part and not part.isdigit()
                else "Put the frozen part into evaluation mode after `model.train()`: call `eval()` on it."
            ]
            severity = Severity.WARNING if far else Severity.INFO
            where = Where(module=norms[0], phase="forward")
            return found(limits, reading, severity, message, evidence, advice=advice, where=where)
        return None
