"""`unoptimized-parameter`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.spots import backward_line
from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class UnoptimizedParameter:
    """Parameters take part in the loss and get gradients, but no optimizer holds them.

    Why it matters
    --------------
    They keep their initial values for the whole run. A new head that stays random spoils everything behind it; an
    optimizer that was built before the model was replaced or copied trains weights that nobody uses any more.

    How it is judged
    ----------------
    Over `looks` steps: parameters of a model that need a gradient, get one, are in no optimizer that has stepped, and
    are not changed by anyone else. Critical where an optimizer steps `steps` times without any gradient while
    parameters of the same shapes get them: it holds copies; and where all that the optimizers hold is frozen, as when
    an adapter froze the model after they were built. A warning where they work on what optimized parameters have made,
    and no more than `minority` of the model's modules are left out (or they are a small model of their own, in
    training mode, called once), and where they were frozen and need a gradient since; and where they are a whole model
    in training mode that feeds the optimized part, with weights as torch made them: there is nothing in it yet that
    could be kept. Info where everything else before the optimized part is left out, or most of the model: training
    only a head, a prompt or an adapter is done on purpose.

    What to try
    -----------
    Build the optimizer after the model is complete (layers replaced, moved, copied, loaded), or add what is new with
    `optimizer.add_param_group`. What is to stay as it is should say so: `requires_grad_(False)`.

    An example
    ----------
    A head that came after the optimizer:

        optimizer = Adam(model.parameters())
        model.fc = nn.Linear(512, 10)             # not in the optimizer: build it after this line
    """

    id: ClassVar[str] = "unoptimized-parameter"
    needs: ClassVar[tuple[str, ...]] = ("facts/parameters",)
    follows: ClassVar[tuple[str, ...]] = ("unregistered-parameter",)

    looks: int = 8
    steps: int = 5
    minority: float = 0.5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: UnoptimizedParameter) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["parameters"], self._detector
        optimizers = facts["optimizers"]
        for optimizer in optimizers:
            starves = optimizer["needing"] and optimizer["needing"] == optimizer["unreached"] and not optimizer["fed"]
            copies = 2 * optimizer["copies"] >= optimizer["needing"]
            if starves and copies and optimizer["steps"] >= limits.steps:
                return self._copies(reading, facts, optimizer)
        if optimizers and all(
            each["steps"] >= limits.looks and not each["needing"] + each["fed"] for each in optimizers
        ):
            alone = [each for each in facts.get("outside", ()) if each["times"] >= limits.looks]
            return self._left_out(reading, facts, alone[0], Severity.CRITICAL) if alone else None
        if not any(optimizer["fed"] for optimizer in optimizers) or not all(each["steps"] for each in optimizers):
            return None
        told = [each for each in facts.get("outside", ()) if each["times"] >= (3 if each["thawed"] else limits.looks)]
        grave = [each for each in told if self._is_grave(each, facts["elements"])]
        if grave:
            return self._left_out(reading, facts, grave[0], Severity.WARNING)
        if told and facts["looks"] >= 2 * limits.looks:
            return self._left_out(reading, facts, told[0], Severity.INFO)
        return None

    def _is_grave(self, each: Mapping[str, Any], held: int) -> bool:
        if each["thawed"]:
            return True
        if each["whole"]:  # a head of its own, if it is small, learns and is called once; else a judge of what is made
            is_head = not each["evaluates"] and each["calls"] == 1 and each["elements"] < held
            is_raw = each["early"] and each["fresh"] and not each["evaluates"] and not each["late"]
            return is_raw or (bool(each["late"]) and is_head)
        return bool(each["late"]) and each["left"] <= self._detector.minority * each["modules"]

    def _copies(self, reading: Reading, facts: Mapping[str, Any], optimizer: Mapping[str, Any]) -> Finding:
        message = (
            f"The optimizer trains weights that are not the model's: {optimizer['name']} has stepped"
            f" {optimizer['steps']} times without any gradient, while parameters of the same shapes, which it does not"
            " hold, get them."
        )
        evidence = {
            "steps": optimizer["steps"],
            "limit": self._detector.steps,
            "parameters": optimizer["needing"],
            "copies": optimizer["copies"],
        }
        advice = [
            "Build the optimizer from the model that is called, after it was made, copied or loaded for the last time:"
            " `optimizer = type(optimizer)(model.parameters(), ...)`.",
        ]
        return found(
            self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=backward_line(facts)
        )

    def _left_out(
        self, reading: Reading, facts: Mapping[str, Any], each: Mapping[str, Any], severity: Severity
    ) -> Finding:
        left = each["thawed"] or (each["late"] if severity is Severity.WARNING else ()) or each["names"]
        message = (
            f"{each['count']} parameters get a gradient at every step, but no optimizer holds them, so that they never"
            f" change: {names(left)}."
        )
        orphans = sum(optimizer["orphans"] for optimizer in facts["optimizers"])
        if severity is Severity.CRITICAL:
            message += " All that the optimizer holds is frozen: nothing is trained."
        elif each["thawed"]:
            message += " They were frozen when the optimizer was built."
        elif each["whole"] and each["fresh"]:
            message += f" All of {names([each['model'] or 'the model'])} is as it was initialised."
        elif orphans:
            message += f" The optimizer holds {orphans} others that the model does not use."
        evidence = {
            "parameters": each["count"],
            "modules": each["left"],
            "of": each["modules"],
            "orphans": orphans,
            "steps": each["times"],
            "limit": self._detector.looks,
        }
        first = left[0].rpartition(".")[0] or left[0]
        advice = [
            f"Build the optimizer after `{first}` was made or unfrozen, from `model.parameters()`.",
            f"Or add it: `optimizer.add_param_group({{'params': model.{first}.parameters()}})`.",
            "If it is meant to stay as it is, set `requires_grad_(False)` on it: its gradient is computed for nothing.",
        ]
        where = backward_line(facts, parameter=left[0])
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=where)
