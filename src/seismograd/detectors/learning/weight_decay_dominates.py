"""`weight-decay-dominates`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.running import First, median
from seismograd.detectors.tables import Floats, Weights, column
from seismograd.detectors.wording import found, number, one_digit
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class WeightDecayDominates:
    """Weight decay, not the loss, moves the weights: they shrink, and the model forgets.

    Why it matters
    --------------
    Decay is meant to be a weak pull. Where it is stronger than the gradient, weights go to zero whatever the data
    say.

    How it is judged
    ----------------
    On sampled updates: in the median of the weight matrices, decay makes up more than `share` of the update (or of what
    goes into it, where momentum adds up many steps) in `samples` samples in a row, the weights have shrunk to below
    `shrunk` of their first norm, and the loss is not better than at its start or has risen well above its best; or,
    whatever the loss, decay alone takes `pull` of the weights at every step, so that nothing learned outlasts some
    dozen steps, they have shrunk as well, and the loss has stopped falling. A converged run, in which little gradient
    is left beside the decay, has a low loss and is left alone.

    What to try
    -----------
    The decay named in the finding; AdamW's usual 0.01 to 0.1 means a pull of lr times that per step.

    An example
    ----------
    AdamW with SGD's habit of a large decay:

        AdamW(model.parameters(), lr=0.03, weight_decay=10.0)    # a third of each weight goes every step
        AdamW(model.parameters(), lr=0.03, weight_decay=0.01)    # instead
    """

    id: ClassVar[str] = "weight-decay-dominates"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    follows: ClassVar[tuple[str, ...]] = ("gradient-vanishing", "lr-jump", "lost-gradient")

    share: float = 0.7
    shrunk: float = 0.5
    samples: int = 5
    pull: float = 0.03

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_best", "_count", "_detector", "_first", "_losses", "_names", "_sizes", "_weights")

    def __init__(self, detector: WeightDecayDominates) -> None:
        self._detector = detector
        self._weights = Weights()
        self._names: tuple[str, ...] = ()
        self._sizes: Floats = np.zeros(0)
        self._first, self._best = First(3), math.inf
        self._losses: deque[float] = deque(maxlen=5)
        self._count = 0

    def check(self, reading: Reading) -> Finding | None:
        tensors = reading.tensors
        if "parameter" in tensors:
            self._weights.learn(reading)
        table = tensors.get("update")
        if table is None:
            return None
        decays, moves, ratios = column(table, "decay"), column(table, "norm"), column(table, "ratio")
        loss = reading.scalars.get("loss", math.nan)
        if decays is None or moves is None or ratios is None or not math.isfinite(loss):
            return None
        self._first.add(loss)
        self._losses.append(loss)
        now = median(list(self._losses))
        if len(self._losses) >= 3 and now < self._best:
            self._best = now
        rows = self._weights.rows(table)
        rows = rows[(ratios[rows] > 0.0) & np.isfinite(ratios[rows])]
        if not len(rows):
            return None
        limits = self._detector
        sizes = moves / np.where(ratios > 0.0, ratios, math.nan)  # as they were before the update
        if table.names != self._names:
            self._names, self._sizes = table.names, sizes
        self._sizes = np.where(np.isnan(self._sizes), sizes, self._sizes)
        if not decays[rows].any():
            return None
        share = float(np.median(decays[rows] / moves[rows]))
        rates, gradients = column(table, "lr"), column(table, "gradient")
        if rates is not None and gradients is not None and (rates[rows] > 0.0).all():
            pushes = rates[rows] * gradients[rows]
            share = max(share, float(np.median(decays[rows] / (decays[rows] + pushes))) if pushes.any() else 0.0)
        left = float(np.median(sizes[rows] / self._sizes[rows]))
        begin = self._first.median
        gained = begin - self._best
        bad = now > begin - 0.02 * abs(begin) or (gained > 0.0 and now - self._best > 0.5 * gained)
        pull = float(np.median(decays[rows] / sizes[rows]))
        if left > limits.shrunk or not (
            (pull >= limits.pull and now - self._best > 0.05 * gained) or (share >= limits.share and bad)
        ):
            self._count = 0
            return None
        self._count += 1
        if self._count < limits.samples:
            return None
        decay = max((v for k, v in reading.scalars.items() if k.startswith("weight_decay/")), default=math.nan)
        amount = (
            f"takes {100 * pull:.2g} % of the weights at each step"
            if pull >= limits.pull
            else f"makes up {100 * share:.0f} % of each update"
        )
        message = (
            f"Weight decay {amount} and has shrunk the weights to"
            f" {100 * left:.2g} % of what they were;"
            f" the loss is {number(now)}, its best was {number(self._best)}."
        )
        evidence = {
            "share": share,
            "limit": limits.share,
            "left": left,
            "left_limit": limits.shrunk,
            "pull": pull,
            "pull_limit": limits.pull,
            "loss": float(now),
            "loss_start": float(begin),
        }
        if not math.isnan(decay):
            evidence["weight_decay"] = float(decay)
            advice = [f"Lower weight decay from {number(decay)} to about {one_digit(decay / 100):g}."]
        else:
            advice = ["Lower weight decay 100 times."]
        advice.append("Leave biases and the scales of normalisation layers out of it.")
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice)
