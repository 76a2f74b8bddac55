"""`detached-loss`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.spots import backward_line
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class DetachedLoss:
    """The loss is cut off from the model: backward runs, and reaches none of its parameters.

    Why it matters
    --------------
    The loop runs without an error, the loss is printed, and nothing is learned: the optimizer steps without a single
    gradient.

    How it is judged
    ----------------
    At least `backwards` backward passes ran, and `steps` steps of an optimizer were made. None of them reached any
    parameter that an optimizer holds or any other module's, and no such parameter ever had a gradient. Or the run ended
    with torch's error that the loss has no history, although there are parameters that need a gradient.

    What to try
    -----------
    Call backward on the loss itself. A tensor that is made anew (`torch.tensor(loss)`, `loss.item()`, `loss.data`,
    `loss.detach()`, a NumPy array) has no history, and `requires_grad=True` on it only hides that. Look for
    `torch.no_grad()` around the forward pass.

    An example
    ----------
    The error "does not require grad" was silenced rather than mended:

        loss = torch.tensor(criterion(model(x), y).item(), requires_grad=True)
        loss = criterion(model(x), y)    # instead
    """

    id: ClassVar[str] = "detached-loss"
    needs: ClassVar[tuple[str, ...]] = ("facts/parameters",)
    follows: ClassVar[tuple[str, ...]] = ()

    backwards: int = 4
    steps: int = 3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: DetachedLoss) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["parameters"], self._detector
        if raised := facts.get("raised"):
            return self._without_history(reading, facts, raised) if raised["needing"] else None
        if facts["reached"] or facts["strangers"] or not facts["held"] or facts["backwards"] < limits.backwards:
            return None
        steps = sum(optimizer["steps"] for optimizer in facts["optimizers"])
        if steps < limits.steps or any(optimizer["fed"] for optimizer in facts["optimizers"]):
            return None
        message = (
            f"The loss is cut off from the model: {facts['backwards']} backward passes reached none of the"
            f" {facts['held']} parameters that the optimizer holds, and it stepped {steps} times without a gradient."
        )
        evidence = {
            "backwards": facts["backwards"],
            "limit": limits.backwards,
            "steps": steps,
            "reached": 0,
            "parameters": facts["held"],
        }
        return found(limits, reading, Severity.CRITICAL, message, evidence, advice=_ADVICE, where=backward_line(facts))

    def _without_history(self, reading: Reading, facts: Mapping[str, Any], raised: Mapping[str, Any]) -> Finding:
        message = (
            "The loss is cut off from the model: `backward()` raised, since nothing that the loss was computed from"
            f" needs a gradient, while {raised['needing']} of the model's {raised['of']} parameters do."
        )
        evidence = {"parameters": raised["of"], "needing": raised["needing"], "backwards": facts["backwards"]}
        where = backward_line(facts)
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=_ADVICE, where=where)


_ADVICE = (
    "Call backward on the loss as the criterion returned it: `torch.tensor(loss, requires_grad=True)`, `loss.data`,"
    " `loss.detach()` and `loss.item()` have no way back to the model.",
    "See that the forward pass of training is not inside `torch.no_grad()`, and that predictions are not turned into"
    " NumPy arrays, new tensors or `argmax` before the loss.",
)
