"""`detached-loss`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.spots import backward_line
from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class DetachedLoss:
    """The loss, or a term of it, is cut off from the model: backward runs, and does not reach its parameters.

    Why it matters
    --------------
    The loop runs without an error, the loss is printed, and nothing is learned: the optimizer steps without a single
    gradient.

    How it is judged
    ----------------
    At least `backwards` backward passes ran, and `steps` steps of an optimizer were made. None of them reached any
    parameter that an optimizer holds or any other module's, and no such parameter ever had a gradient. Or the run ended
    with torch's error that the loss has no history, although there are parameters that need a gradient.

    A term, which is a warning: when the run is over, after `looks` steps at least, or has been looked at `long` times,
    a loss of torch's was computed in `times` steps from what modules gave that are called in training mode and whose
    parameters sit in an optimizer, and no backward ever went through it.

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
    looks: int = 16
    long: int = 48
    times: int = 8

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
        if modules := left_out(facts, limits):
            return self._term(reading, facts, modules)
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

    def _term(self, reading: Reading, facts: Mapping[str, Any], modules: Sequence[Mapping[str, Any]]) -> Finding:
        paths = [each["module"] for each in modules]
        count = sum(each["parameters"] for each in modules)
        message = (
            f"A loss is computed from what {names(paths)} give{'s' * (len(paths) == 1)}, and no backward goes through"
            f" it: {count} parameters in the optimizer were not reached in {facts['looks']} steps."
        )
        evidence = {"parameters": count, "modules": len(paths), "steps": facts["looks"], "limit": self._detector.looks}
        advice = (
            "Add that loss itself to the one that `backward()` is called on: `.item()`, `float()`, `.detach()` and"
            " `.data` cut it off.",
        )
        line = modules[0].get("line") or {}
        place = {key: line.get(key) for key in ("file", "line", "code")}
        where = Where(module=paths[0], phase="loss", **place)
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=where)

    def _without_history(self, reading: Reading, facts: Mapping[str, Any], raised: Mapping[str, Any]) -> Finding:
        message = (
            "The loss is cut off from the model: `backward()` raised, since nothing that the loss was computed from"
            f" needs a gradient, while {raised['needing']} of the model's {raised['of']} parameters do."
        )
        evidence = {"parameters": raised["of"], "needing": raised["needing"], "backwards": facts["backwards"]}
        where = backward_line(facts)
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=_ADVICE, where=where)


def left_out(facts: Mapping[str, Any], limits: DetachedLoss) -> list[Mapping[str, Any]]:
    """Modules of which a loss was computed at many steps that no backward went through, and that goes on or is over."""
    if not facts.get("idle") or not facts["reached"] or facts["looks"] < limits.looks:
        return []
    modules = facts["idle"]["modules"] if facts["over"] or facts["looks"] >= limits.long else ()
    return [each for each in modules if each["measured"] >= limits.times > each["dropped"]]


_ADVICE = (
    "Call backward on the loss as the criterion returned it: `torch.tensor(loss, requires_grad=True)`, `loss.data`,"
    " `loss.detach()` and `loss.item()` have no way back to the model.",
    "See that the forward pass of training is not inside `torch.no_grad()`, and that predictions are not turned into"
    " NumPy arrays, new tensors or `argmax` before the loss.",
)
