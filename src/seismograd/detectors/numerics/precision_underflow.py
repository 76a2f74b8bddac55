"""`precision-underflow`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.running import First
from seismograd.detectors.tables import Weights, column
from seismograd.detectors.wording import found, names, number, parameter, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class PrecisionUnderflow:
    """Updates are too small for the dtype of the weights: they stay bit-identical although gradients flow.

    Why it matters
    --------------
    In bfloat16 a weight changes only if the update is more than about 1/256 of it. Smaller ones are rounded away,
    every step, and the run stands still while loss, gradients and learning rate look normal.

    How it is judged
    ----------------
    On sampled updates, over the weight matrices that had a gradient: the share of their elements whose bits changed,
    in the median below `changed` for `samples` updates in a row. A learning rate of zero or at the end of its decay,
    gradients that are zero in most elements, and gradients that have died down with convergence are no underflow.

    What to try
    -----------
    Keep the weights in float32 and use autocast for the computation, keep a float32 master copy in the optimizer, or
    use stochastic rounding. A larger learning rate only hides it.
    """

    id: ClassVar[str] = "precision-underflow"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    follows: ClassVar[tuple[str, ...]] = ("amp-scale-collapse", "lr-jump")

    changed: float = 0.05
    samples: int = 5
    steps: int = 10
    gradient: float = 0.01

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_early", "_rate", "_since", "_still", "_weights", "_zeros")

    def __init__(self, detector: PrecisionUnderflow) -> None:
        self._detector = detector
        self._weights = Weights()
        self._early = First(3)
        self._rate, self._since = 0.0, 0
        self._still: deque[float] = deque(maxlen=detector.samples)
        self._zeros: dict[str, float] = {}

    def check(self, reading: Reading) -> Finding | None:
        tensors = reading.tensors
        if "parameter" in tensors:
            self._weights.learn(reading)
            gradient = tensors.get("gradient")
            zeros = column(gradient, "zeros") if gradient is not None else None
            if gradient is not None and zeros is not None:
                self._zeros = dict(zip(gradient.names, zeros.tolist(), strict=True))
        table = tensors.get("update")
        if table is None:
            return None
        limits = self._detector
        changed, gradients = column(table, "changed"), column(table, "gradient")
        lr = rates(reading.scalars)
        if changed is None or gradients is None or not lr or "amp-skipped" in reading.marks:
            return None
        self._rate = max(self._rate, *lr)
        rows = self._weights.rows(table)
        rows = rows[(gradients[rows] > 0.0) & np.isfinite(gradients[rows])]
        dense = [at for at in rows if self._zeros.get(table.names[at], 0.0) < 0.5]
        if min(lr) <= 0.01 * self._rate or len(dense) < 1:
            self._still.clear()
            return None
        flow = float(np.sqrt(np.sum(gradients[dense] ** 2)))
        self._early.add(flow)
        share = float(np.median(changed[dense]))
        if share >= limits.changed or flow < limits.gradient * self._early.median:
            self._still.clear()
            return None
        if not self._still:
            self._since = reading.step
        self._still.append(share)
        if len(self._still) < limits.samples or reading.step - self._since < limits.steps:
            return None
        stuck = [table.names[at] for at in dense if changed[at] < limits.changed]
        none = max(self._still) == 0.0
        moved = "not one element" if none else f"only {100 * share:.2g} % of the elements"
        message = (
            f"{moved.capitalize()} of the weights changed in each of the last {len(self._still)} updates looked at,"
            f" although gradients flow (norm {number(flow)}, lr {number(max(lr))}): {names(stuck)}."
        )
        evidence = {
            "changed": share,
            "limit": limits.changed,
            "gradient": flow,
            "lr": float(max(lr)),
            "parameters": len(stuck),
            "of": len(dense),
        }
        advice = [
            "Keep the weights in float32 (`model.float()`) and compute under `torch.autocast`: their dtype rounds these"
            " updates away.",
            "If the weights have to stay in half precision, use an optimizer with float32 master weights or"
            " stochastic rounding.",
        ]
        severity = Severity.CRITICAL if none else Severity.WARNING
        return found(
            limits, reading, severity, message, evidence, advice=advice, where=parameter(stuck[0], "optimizer")
        )
