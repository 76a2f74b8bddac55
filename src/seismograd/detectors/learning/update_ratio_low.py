"""`update-ratio-low`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.beginning import Beginning
from seismograd.detectors.tables import Weights, column
from seismograd.detectors.wording import found, names, number, parameter, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class UpdateRatioLow:
    """A layer hardly moves, although it gets a gradient and the other layers move.

    Why it matters
    --------------
    It keeps its random weights, and the others have to learn around it.

    How it is judged
    ----------------
    On sampled updates: a weight matrix moves by less than `ratio` of its norm, and less than `share` of what the
    median of the weight matrices does, or not by a single bit, in `samples` samples in a row, with a gradient and a
    learning rate above zero. With several parameter groups it may be meant, and is info; not where the weights are
    fresh, nor where hardly a bit of them changes at any rate but zero: who wants that, freezes them.

    What to try
    -----------
    Look at that layer's scale and gradient: weights far too large, a gradient that is lost on its way, or a group
    with a far too small rate.

    An example
    ----------
    A group's rate was set for fine-tuning and forgotten:

        Adam([{"params": backbone, "lr": 1e-8}, {"params": head}], lr=1e-3)    # the backbone stays as it is
        Adam([{"params": backbone, "lr": 1e-5}, {"params": head}], lr=1e-3)    # instead
    """

    id: ClassVar[str] = "update-ratio-low"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    follows: ClassVar[tuple[str, ...]] = (
        "lr-too-low",
        "lr-jump",
        "gradient-vanishing",
        "precision-underflow",
        "bad-initialization",
        "frozen-parameter",
        "missing-step",
        "lost-gradient",
        "scheduler-order",
    )

    ratio: float = 1e-7
    share: float = 1e-3
    samples: int = 6

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_beginning", "_detector", "_times", "_weights")

    def __init__(self, detector: UpdateRatioLow) -> None:
        self._detector = detector
        self._weights, self._beginning = Weights(), Beginning()
        self._times: dict[str, int] = {}

    def check(self, reading: Reading) -> Finding | None:
        tensors = reading.tensors
        if "parameter" in tensors:
            self._weights.learn(reading)
            self._beginning.learn(reading)
        table = tensors.get("update")
        if table is None:
            return None
        ratios, gradients = column(table, "ratio"), column(table, "gradient")
        if ratios is None or gradients is None:
            return None
        limits = self._detector
        rows = self._weights.rows(table)
        rows = rows[(ratios[rows] >= 0.0) & (gradients[rows] > 0.0)]
        if len(rows) < 3:
            return None
        usual = float(np.median(ratios[rows]))
        low = rows[(ratios[rows] < limits.ratio) & (ratios[rows] < limits.share * usual)]
        own = column(table, "lr")
        if own is not None:
            low = low[own[low] != 0.0]
        if not len(low):
            if self._times:
                self._times = {}
            return None
        self._times = {table.names[at]: self._times.get(table.names[at], 0) + 1 for at in low}
        lasting = [at for at in low if self._times[table.names[at]] >= limits.samples]
        if not lasting:
            return None
        lr = rates(reading.scalars)
        slow = [table.names[at] for at in lasting]
        ratio = float(ratios[lasting[0]])
        message = (
            f"{names(slow)} hardly move: {number(ratio)} of their own size a step, where the other weights move"
            f" {number(usual)} (step {reading.step})."
        )
        rate = float(own[lasting[0]]) if own is not None and own[lasting[0]] > 0.0 else max(lr)
        evidence = {
            "ratio": ratio,
            "limit": limits.ratio,
            "others": usual,
            "parameters": len(slow),
            "lr": float(rate),
        }
        smaller = rate < 1e-3 * max(lr)
        if smaller:
            message += f" The learning rate of their group is {number(rate)}, that of others up to {number(max(lr))}."
        advice = [
            f"Look at the scale of `{slow[0]}` and at the gradient that reaches it"
            f" ({number(float(gradients[lasting[0]]))}).",
            f"Give it its own parameter group with a learning rate some {number(usual / ratio)} times higher."
            if ratio > 0.0
            else "Its updates are rounded away: mend the gradient first, a higher learning rate alone will not do.",
        ]
        if smaller:
            advice = [f"Give `{slow[0]}` a rate nearer to {number(max(lr))}, or freeze it: `requires_grad_(False)`."]
        changed = column(table, "changed")
        still = changed is not None and bool((changed[lasting] < _UNCHANGED).all())
        meant = len(set(lr)) > 1 and not self._beginning.fresh and not still
        severity = Severity.INFO if meant else Severity.WARNING
        return found(limits, reading, severity, message, evidence, advice=advice, where=parameter(slow[0], "optimizer"))


_UNCHANGED = 0.05
"""Weights stand still of which a smaller share changes in a step."""
