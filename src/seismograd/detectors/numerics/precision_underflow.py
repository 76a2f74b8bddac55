"""`precision-underflow`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.beginning import SOLVED
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
    in the median below `changed` for `samples` updates in a row and `steps` steps, while the gradient is at least
    `gradient` of what it was at first. A learning rate of zero or at the end of its decay,
    gradients that are zero in most elements, a loss that came down to a hundred-thousandth, gradients that have died
    down with convergence or are so small that
    moving every weight by its own size would not change the loss by `effect` of it (a minimum), weights on which decay
    pulls as strongly as the gradient pushes, and a rate below `aim` of the weights, which no dtype could follow, are no
    underflow; for weights in half precision, a rate that float32 could not follow either.

    What to try
    -----------
    Keep the weights in float32 and use autocast for the computation, keep a float32 master copy in the optimizer, or
    use stochastic rounding. A larger learning rate only hides it.

    An example
    ----------
    The whole model in bfloat16, with a small rate: `1 + 1e-4` is 1 in it:

        model.to(torch.bfloat16)                            # updates are rounded away
        with torch.autocast("cuda", dtype=torch.bfloat16):  # instead: the weights stay float32
            loss = loss_fn(model(x), y)
    """

    id: ClassVar[str] = "precision-underflow"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    follows: ClassVar[tuple[str, ...]] = (
        "bad-initialization",
        "gradient-vanishing",
        "amp-scale-collapse",
        "lr-jump",
        "lost-gradient",
    )

    changed: float = 0.05
    samples: int = 5
    steps: int = 10
    gradient: float = 0.01
    aim: float = 1e-5
    effect: float = 1e-3

    def start(self) -> _Checker:
        return _Checker(self)


_SINGLE = 1e-6
"""Above the precision of float32, below that of half precision."""

_FLOAT32 = 1e-6
"""Updates of this share of the weights change nearly all of them in float32."""


class _Checker:
    __slots__ = (
        "_aims",
        "_detector",
        "_early",
        "_highest",
        "_rate",
        "_since",
        "_sizes",
        "_sparse",
        "_still",
        "_weights",
    )

    def __init__(self, detector: PrecisionUnderflow) -> None:
        self._detector = detector
        self._weights = Weights()
        self._early = First(3)
        self._rate, self._since, self._highest = 0.0, 0, 0.0
        self._still: deque[float] = deque(maxlen=detector.samples)
        self._sparse: set[str] = set()
        self._aims: dict[str, float] = {}
        self._sizes: dict[str, float] = {}

    def check(self, reading: Reading) -> Finding | None:
        tensors = reading.tensors
        loss = abs(reading.scalars.get("loss", 0.0))
        if loss < math.inf:
            self._highest = max(self._highest, loss)
        if "parameter" in tensors:
            self._learn(reading)
            gradient = tensors.get("gradient")
            zeros = column(gradient, "zeros") if gradient is not None else None
            if gradient is not None and zeros is not None:
                self._sparse = {gradient.names[at] for at in np.flatnonzero(zeros >= 0.5)}
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
        decay = column(table, "decay")
        if decay is not None:  # where decay pulls as strongly as the gradient pushes, standing still is the optimum
            rows = rows[decay[rows] < 0.3 * min(lr) * gradients[rows]]
        dense = [at for at in rows.tolist() if table.names[at] not in self._sparse]
        if min(lr) <= 0.01 * self._rate or len(dense) < 1:
            self._still.clear()
            return None
        flow = float(np.sqrt(np.sum(gradients[dense] ** 2)))
        self._early.add(flow)
        share = float(np.median(changed[dense]))
        quiet = share < limits.changed and flow >= limits.gradient * self._early.median
        if loss <= SOLVED * self._highest:
            quiet = False  # the task is solved, as far as its numbers go
        elif quiet:
            reach = sum(float(gradients[at]) * self._sizes.get(table.names[at], 0.0) for at in dense)
            quiet = reach >= limits.effect * loss
        aim = max(lr) * float(np.median([self._aims.get(table.names[at], 0.0) for at in dense])) if quiet else 0.0
        precision = column(table, "precision")
        half = precision is not None and float(np.median(precision[dense])) > _SINGLE
        if aim < (_FLOAT32 if half else limits.aim):
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
            "aim": aim,
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

    def _learn(self, reading: Reading) -> None:
        """Notes how far a learning rate of 1 would move each weight of its own size, if Adam or sign-like."""
        table = self._weights.learn(reading)
        if table is None:
            return
        norms, sizes = column(table, "norm"), column(table, "size")
        if norms is not None and sizes is not None:
            rows = [at for at in self._weights.rows(table) if norms[at] > 0.0]
            self._sizes = {table.names[at]: float(norms[at]) for at in rows}
            self._aims = {table.names[at]: float(np.sqrt(sizes[at]) / norms[at]) for at in rows}
