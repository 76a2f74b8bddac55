"""`frozen-parameter`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.spots import backward_line
from seismograd.detectors.wording import found, names, parameter
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class FrozenParameter:
    """Parameters sit in the optimizer, but do not change: their gradient is zero always, or someone puts them back.

    Why it matters
    --------------
    The optimizer steps over them, and they stay as they were made. Nothing in the loop tells: there is a gradient, it
    only is zero everywhere.

    How it is judged
    ----------------
    In `looks` steps every way from the loss to them leads through an op without a slope (`round`, `floor`, `ceil`,
    `trunc`, `sign`), whose derivative is zero by definition; critical where that is `most` of what should be trained.
    A straight-through estimator has another way, and is fine. Or weights that every step moves are back at the same
    values, bit for bit, before the next one, `restored` times in a row: someone puts them back. Or an optimizer has
    stepped `steps` times, and none of its parameters needs a gradient or ever had one. Or the run ended with torch's
    error that the loss has no history, and no parameter of the model needs a gradient. Frozen parameters next to others
    that are trained are nobody's mistake.

    What to try
    -----------
    Pass the gradient around the op (`x + (x.round() - x).detach()`), use a smooth one instead, or round only in
    evaluation. What was frozen for a while needs `requires_grad_(True)` again.

    An example
    ----------
    Rounded predictions in the loss:

        loss = mse(torch.round(model(x)), y)
        loss = mse(model(x), y)                # instead: round what is shown
    """

    id: ClassVar[str] = "frozen-parameter"
    needs: ClassVar[tuple[str, ...]] = ("facts/parameters",)
    follows: ClassVar[tuple[str, ...]] = ("detached-loss", "missing-step", "lost-gradient", "unoptimized-parameter")

    looks: int = 5
    steps: int = 10
    restored: int = 12
    most: float = 0.5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: FrozenParameter) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["parameters"], self._detector
        if raised := facts.get("raised"):
            return None if raised["needing"] else self._all_frozen(reading, facts, raised)
        blocked = facts.get("blocked")
        if blocked and facts["looks"] >= limits.looks:
            return self._flat(reading, facts, blocked)
        restored = facts.get("restored")
        if restored and restored["times"] >= limits.restored:
            return self._restored(reading, restored)
        for optimizer in facts["optimizers"]:
            idle = optimizer["parameters"] and not optimizer["fed"] and not optimizer["needing"]
            if idle and optimizer["steps"] >= limits.steps:
                return self._off(reading, facts, optimizer)
        return None

    def _all_frozen(self, reading: Reading, facts: Mapping[str, Any], raised: Mapping[str, Any]) -> Finding:
        adapters = raised["adapters"]
        message = f"Nothing can learn: none of the model's {raised['of']} parameters needs a gradient"
        message += f", its adapters included ({names(adapters)})." if adapters else "."
        message += " `backward()` raised for that."
        advice = ["Set `requires_grad_(True)` on what is to be trained, before the optimizer is built."]
        if adapters:
            advice.insert(
                0,
                "Load the adapter to be trained: `PeftModel.from_pretrained(model, path, is_trainable=True)`; a"
                " `LoraConfig` wants `inference_mode=False`.",
            )
        evidence = {"parameters": raised["of"], "needing": 0, "adapters": len(adapters)}
        where = backward_line(facts, parameter=adapters[0] if adapters else None)
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)

    def _flat(self, reading: Reading, facts: Mapping[str, Any], blocked: Mapping[str, Any]) -> Finding:
        share = blocked["elements"] / max(1, facts["elements"])
        ops = ", ".join(f"`{op}`" for op in blocked["ops"])
        message = (
            f"{blocked['count']} parameters in the optimizer get a gradient of exactly zero, always: every way from the"
            f" loss to {names(blocked['names'])} leads through {ops}, which has no slope."
        )
        evidence = {
            "parameters": blocked["count"],
            "ops": ", ".join(blocked["ops"]),
            "share": share,
            "steps": facts["looks"],
            "limit": self._detector.looks,
        }
        op = blocked["ops"][0].partition(",")[0]
        advice = [
            f"Leave `{op}` out of the loss in training, or pass the gradient around it:"
            f" `y = x + (torch.{op}(x) - x).detach()`.",
        ]
        severity = Severity.CRITICAL if share >= self._detector.most else Severity.WARNING
        where = backward_line(facts, parameter=blocked["names"][0])
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=where)

    def _restored(self, reading: Reading, restored: Mapping[str, Any]) -> Finding:
        message = (
            f"{names(restored['names'])} {'is' if len(restored['names']) == 1 else 'are'} moved by every step and put"
            f" back to the same values before the next one, {restored['times']} times in a row."
        )
        evidence = {
            "parameters": len(restored["names"]),
            "times": restored["times"],
            "limit": self._detector.restored,
        }
        advice = [
            "Look for what sets weights inside the loop or in `forward`: `load_state_dict`, `copy_`, `nn.init`, a"
            " checkpoint that is loaded at every step. It belongs before the loop."
        ]
        severity = Severity.CRITICAL if len(restored["names"]) >= restored["of"] else Severity.WARNING
        where = parameter(restored["names"][0], "optimizer")
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=where)

    def _off(self, reading: Reading, facts: Mapping[str, Any], optimizer: Mapping[str, Any]) -> Finding:
        message = (
            f"{optimizer['name']} has stepped {optimizer['steps']} times over {optimizer['parameters']} parameters"
            f" (`{optimizer['first']}` first) of which none has `requires_grad`: it changes nothing."
        )
        evidence = {
            "steps": optimizer["steps"],
            "limit": self._detector.steps,
            "parameters": optimizer["parameters"],
        }
        advice = ["Set `requires_grad_(True)` again on what this optimizer is to train, or drop the optimizer."]
        where = backward_line(facts, parameter=optimizer["first"])
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=where)
