"""`unused-parameter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.detached_loss import DetachedLoss, left_out
from seismograd.detectors.ranks.unused import searched, stops
from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class UnusedParameter:
    """Parameters sit in the optimizer, and no backward ever reaches them: their part of the model is not used.

    Why it matters
    --------------
    A layer that was made and never called is missing from the network that is trained. Where it was left out on
    purpose, its parameters only take memory (and distributed training stops at them).

    How it is judged
    ----------------
    Parameters that need a gradient and sit in an optimizer, and that no backward reached in `looks` steps. A warning
    where a module with weights is never called by a forward pass that calls its neighbours, and would fit into the
    chain of their calls: between two of them, or after the last. A warning, too, where a module is called in training
    mode, and its output is dropped by the `forward` that called it, in `dropped` steps or more: it is no part of what
    that returns. (Where a loss is computed from it that no backward goes through, that is `detached-loss`.) Otherwise
    it is only worth knowing: heads that are used in turn, experts that are not chosen, a pooler whose output is
    returned and nobody wants, a token that is not needed.

    `DistributedDataParallel` waits for the gradient of every parameter, and raises an error at the next forward pass if
    one did not come: critical, with the parameters. Where it was told to look for unused ones
    (`find_unused_parameters=True`) and every parameter had its gradient in `traversals` passes, it is worth knowing
    that it walks over the graph at each step for nothing.

    What to try
    -----------
    Call the module in `forward`, or delete it. For a part that waits for its turn, there is nothing to do; under
    `DistributedDataParallel` it needs `find_unused_parameters=True`.

    An example
    ----------
    A layer that is made and forgotten:

        self.hidden = nn.Linear(64, 64)
        ...
        return self.out(F.relu(self.inp(x)))                          # `hidden` is never called
        return self.out(F.relu(self.hidden(F.relu(self.inp(x)))))     # instead
    """

    id: ClassVar[str] = "unused-parameter"
    needs: ClassVar[tuple[str, ...]] = ("facts/parameters|facts/ddp|facts/ranks",)
    follows: ClassVar[tuple[str, ...]] = ("detached-loss", "missing-gradient", "unoptimized-parameter")

    looks: int = 16
    dropped: int = 8
    traversals: int = 30

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: UnusedParameter) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        limits = self._detector
        if "ddp" in reading.facts and (finding := stops(limits, reading)) is not None:
            return finding
        if "ranks" in reading.facts and (finding := searched(limits, reading, limits.traversals)) is not None:
            return finding
        if "parameters" not in reading.facts:
            return None
        facts = reading.facts["parameters"]
        if facts["looks"] < limits.looks or not facts["reached"]:
            return None
        unused = facts.get("unused", ())
        forgotten = [each for each in unused if each["weights"] and each["passed_over"] and each["fits"]]
        if forgotten:
            return self._forgotten(reading, facts, forgotten)
        if left_out(facts, DetachedLoss()):
            return None
        idle = facts.get("idle")
        if idle and (finding := self._in_vain(reading, facts, idle["modules"])) is not None:
            return finding
        if not unused and not idle:
            return None
        paths = [each["module"] for each in unused]
        of_idle = list(idle["names"]) if idle else []
        count = sum(each["parameters"] for each in unused) + (idle["count"] if idle else 0)
        message = f"{count} parameters in the optimizer were never reached by backward in {facts['looks']} steps: "
        message += names(paths + of_idle)
        message += "; their output has no part in the loss." if idle else ", never called."
        evidence = {"parameters": count, "steps": facts["looks"], "limit": limits.looks}
        advice = ["Nothing to do if they wait for their turn; otherwise delete them, or use what they make."]
        where = Where(module=paths[0]) if paths else Where(parameter=of_idle[0])
        return found(limits, reading, Severity.INFO, message, evidence, advice=advice, where=where)

    def _in_vain(
        self, reading: Reading, facts: Mapping[str, Any], modules: Sequence[Mapping[str, Any]]
    ) -> Finding | None:
        """What is called at every step for nothing."""
        told = [each for each in modules if each["dropped"] >= self._detector.dropped]
        if not told:
            return None
        limits = self._detector
        paths = [each["module"] for each in told]
        one = len(told) == 1
        it, it_gives = ("it", "it gives") if one else ("them", "they give")
        how = f"the `forward` that calls {it} makes no use of what {it_gives}"
        count = sum(each["parameters"] for each in told)
        message = (
            f"{names(paths)} {'is' if one else 'are'} called for nothing: {how}; {count} parameters in the optimizer"
            f" were not reached by backward in {facts['looks']} steps."
        )
        evidence = {"parameters": count, "modules": len(told), "steps": facts["looks"], "limit": limits.looks}
        last = paths[0].rpartition(".")[2]
        advice = [f"Use what `{last}` returns (add it, concatenate it), or delete the call."]
        where = Where(module=paths[0], phase="forward")
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=where)

    def _forgotten(self, reading: Reading, facts: Mapping[str, Any], forgotten: list[Mapping[str, Any]]) -> Finding:
        paths = [each["module"] for each in forgotten]
        count = sum(each["parameters"] for each in forgotten)
        one = forgotten[0]
        message = (
            f"{names(paths)} ({one['kind']}) is never called, while the modules next to it are: its {count} parameters"
            f" were not reached by backward in {facts['looks']} steps."
            if len(forgotten) == 1
            else f"{names(paths)} are never called, while the modules next to them are: {count} parameters were not"
            f" reached by backward in {facts['looks']} steps."
        )
        evidence = {
            "parameters": count,
            "modules": len(forgotten),
            "steps": facts["looks"],
            "limit": self._detector.looks,
        }
        advice = [f"Call `self.{paths[0].rpartition('.')[2]}` in `forward`, or delete it."]
        where = Where(module=paths[0], phase="forward")
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=where)
