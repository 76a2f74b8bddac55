"""`ineffective-freeze`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class IneffectiveFreeze:
    """Something was meant to be frozen, and is trained all the same.

    Why it matters
    --------------
    A pretrained part that should be kept is overwritten, with the learning rate of a part that starts from nothing.

    How it is judged
    ----------------
    A module, a parameter or a param group carries an attribute that torch does not know there, set to False
    (`module.requires_grad`, `parameter.require_grad`), and in `looks` steps all its parameters still need gradients,
    get them, and are in an optimizer. Or parameters that were trained have `requires_grad=False` now, and the optimizer
    still moved them in `steps` steps: an old gradient is left, on which it goes on, with momentum and decay.

    What to try
    -----------
    `module.requires_grad_(False)`, with the underscore, or set `requires_grad` on each parameter. When freezing in the
    middle of a run, clear the gradients with `set_to_none=True`, or build the optimizer anew without those parameters.

    An example
    ----------
    A module is no tensor, and the assignment does nothing:

        model.backbone.requires_grad = False
        model.backbone.requires_grad_(False)    # instead
    """

    id: ClassVar[str] = "ineffective-freeze"
    needs: ClassVar[tuple[str, ...]] = ("facts/parameters",)
    follows: ClassVar[tuple[str, ...]] = ()

    looks: int = 5
    steps: int = 3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: IneffectiveFreeze) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["parameters"], self._detector
        claims = facts.get("claims")
        if claims and facts["looks"] >= limits.looks:
            return self._claimed(reading, facts, claims[0])
        stale = facts.get("stale")
        if stale and stale["times"] >= limits.steps:
            return self._stale(reading, stale)
        return None

    def _claimed(self, reading: Reading, facts: Mapping[str, Any], claim: Mapping[str, Any]) -> Finding:
        on = claim["on"] or "the model"
        message = (
            f"`{on}.{claim['attribute']} = False` has no effect on a {_WORDS[claim['what']]}:"
            f" {claim['parameters']} parameters that it was meant to freeze are trained."
        )
        evidence = {
            "attribute": claim["attribute"],
            "parameters": claim["parameters"],
            "steps": facts["looks"],
            "limit": self._detector.looks,
        }
        if claim["what"] == "module":
            advice = [f"Call `{claim['on'] or 'model'}.requires_grad_(False)`: that reaches every parameter."]
            where = Where(module=claim["on"] or None)
        else:
            advice = ["Set `parameter.requires_grad = False` on each parameter: that is the only name torch knows."]
            where = Where(parameter=claim["on"])
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=where)

    def _stale(self, reading: Reading, stale: Mapping[str, Any]) -> Finding:
        message = (
            f"{stale['count']} parameters were frozen and still change at every step: {names(stale['names'])}. An old"
            " gradient is left on them, and the optimizer goes on with it."
        )
        evidence = {"parameters": stale["count"], "steps": stale["times"], "limit": self._detector.steps}
        advice = [
            "Clear their gradients when freezing them: `parameter.grad = None`, or"
            " `optimizer.zero_grad(set_to_none=True)`.",
            "Or build the optimizer anew, without them.",
        ]
        where = Where(parameter=stale["names"][0], phase="optimizer")
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=where)


_WORDS = {"module": "module", "parameter": "parameter", "group": "param group"}
