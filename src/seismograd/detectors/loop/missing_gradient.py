"""`missing-gradient`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.spots import backward_line
from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class MissingGradient:
    """Modules that the forward pass uses never get a gradient: the way back to them is cut.

    Why it matters
    --------------
    What lies before the cut keeps its initial weights. The rest learns to make do with random features, so that the
    loss falls and nothing seems wrong.

    How it is judged
    ----------------
    Parameters that need a gradient and sit in an optimizer, whose modules were called in training mode, and that no
    backward reached in `looks` steps. Either what their module made goes on, without a gradient, into modules that are
    trained (the data there is neither what the model was given nor has it a history); or a whole optimizer stepped
    `steps` times and not one of its parameters ever had a gradient. Critical where that is `most` of all that should
    be trained. Modules whose output nobody uses, modules in evaluation mode, those without requires_grad, and those
    whose optimizer has yet to step while others do, as an actor's does until the episode ends, are left alone.

    What to try
    -----------
    Look between the last module named and the next one for `detach()`, `.data`, `.item()`, `torch.tensor(...)`, NumPy,
    `argmax`, or `torch.no_grad()`. If the part is to stay as it is, say so with `requires_grad_(False)` and `eval()`.

    An example
    ----------
    The generator is trained on what was detached for the discriminator:

        fake = generator(z).detach()
        loss_g = bce(discriminator(fake), ones)             # no gradient gets to the generator
        loss_g = bce(discriminator(generator(z)), ones)     # instead
    """

    id: ClassVar[str] = "missing-gradient"
    needs: ClassVar[tuple[str, ...]] = ("facts/parameters",)
    follows: ClassVar[tuple[str, ...]] = ("detached-loss", "unoptimized-parameter")

    looks: int = 8
    steps: int = 8
    most: float = 0.5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: MissingGradient) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["parameters"], self._detector
        if not (facts["reached"] or facts["strangers"]):
            return None  # that is `detached-loss`
        for optimizer in facts["optimizers"]:
            if self._starves(optimizer) and facts["looks"] >= limits.looks:
                return self._whole(reading, facts, optimizer)
        cut = facts.get("cut")
        if not cut or facts["looks"] < limits.looks or cut["times"] < limits.looks // 2 or cut["evaluates"]:
            return None
        return self._part(reading, facts, cut)

    def _starves(self, optimizer: Mapping[str, Any]) -> bool:
        if optimizer["steps"] < self._detector.steps or optimizer["fed"] or not optimizer["needing"]:
            return False
        all_of_them = optimizer["unreached"] == optimizer["needing"]
        return bool(all_of_them and optimizer["called"] and 2 * optimizer["copies"] < optimizer["needing"])

    def _whole(self, reading: Reading, facts: Mapping[str, Any], optimizer: Mapping[str, Any]) -> Finding:
        message = (
            f"{optimizer['name']} has stepped {optimizer['steps']} times and not one of its {optimizer['needing']}"
            f" parameters (`{optimizer['first']}` first) ever had a gradient, although their modules are called:"
            " the way from the loss to them is cut."
        )
        evidence = {
            "steps": optimizer["steps"],
            "limit": self._detector.steps,
            "parameters": optimizer["needing"],
            "optimizer": optimizer["name"],
        }
        advice = [
            "Look at what the loss of this part is computed from: a `detach()`, `.data` or `torch.no_grad()` meant for"
            " another part ends here, too.",
            "In a GAN, detach the fakes for the discriminator's loss only, and give the generator's loss the fakes"
            " themselves.",
        ]
        where = backward_line(facts, parameter=optimizer["first"])
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)

    def _part(self, reading: Reading, facts: Mapping[str, Any], cut: Mapping[str, Any]) -> Finding:
        share = cut["elements"] / max(1, facts["elements"])
        message = (
            f"{cut['count']} parameters are used in the forward pass and never get a gradient: {names(cut['names'])}."
            " What their modules make goes on into trained ones without a history."
        )
        evidence = {
            "parameters": cut["count"],
            "share": share,
            "steps": facts["looks"],
            "limit": self._detector.looks,
        }
        advice = [
            f"Look at what happens after `{cut['names'][-1].rpartition('.')[0] or cut['names'][-1]}`: `detach()`,"
            " `.data`, `.item()`, `torch.tensor(...)`, NumPy, `argmax` and `torch.no_grad()` all end the way back.",
            "If it is meant to stay as it is, say so: `requires_grad_(False)`, `eval()`, and leave it out of the"
            " optimizer.",
        ]
        severity = Severity.CRITICAL if share >= self._detector.most else Severity.WARNING
        where = backward_line(facts, parameter=cut["names"][0])
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=where)
