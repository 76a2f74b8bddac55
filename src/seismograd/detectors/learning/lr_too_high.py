"""`lr-too-high`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from seismograd.detectors.running import median
from seismograd.detectors.tables import Weights, column
from seismograd.detectors.wording import found, number, one_digit, parameter, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LrTooHigh:
    """Single steps move the weights by about their own size or more, and the loss is the worse for it.

    Why it matters
    --------------
    Such steps replace what the model knows instead of refining it. The run diverges, or ends on a plateau with dead
    units from which a lower rate cannot bring it back.

    How it is judged
    ----------------
    By what updates do, not by the number: on sampled updates most weight matrices move by more than `moved` times
    their own norm, at least twice, and afterwards the loss is well above its start, or has not come down in
    `patience` readings, or is no longer finite. A single matrix is enough that moves by more than `thrown` times its
    norm (a parameter group with a rate of its own), if the loss is well above its start afterwards. Weights that start
    at zero or have shrunk to a tenth do not count, nor do large first steps that the loss likes. A hidden layer through
    which everything passes, and of which no unit fires any more although some did before (or hardly any, and the loss
    is no better than at the start), was thrown there by the updates: where these moved most weights by more than
    `killed` of their norm, and weight decay was not the greater part of it, that is enough.

    What to try
    -----------
    The rate named in the finding: it would have moved the weights by `target` of their size a step. Warm it up if it
    is needed later.

    An example
    ----------
    Adam, at a rate that fits SGD:

        optimizer = Adam(model.parameters(), lr=0.1)     # each weight moves by 0.1 a step
        optimizer = Adam(model.parameters(), lr=1e-3)    # instead
    """

    id: ClassVar[str] = "lr-too-high"
    needs: ClassVar[tuple[str, ...]] = ("lr|facts/activations",)
    follows: ClassVar[tuple[str, ...]] = (
        "bad-initialization",
        "lr-jump",
        "unnormalized-input",
        "unnormalized-target",
        "missing-zero-grad",
        "scheduler-order",
        "loss-input-mismatch",
        "label-out-of-range",
        "accumulation-mismatch",
    )

    moved: float = 0.5
    patience: int = 40
    target: float = 0.02
    killed: float = 0.05
    thrown: float = 5.0

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_after",
        "_bad",
        "_detector",
        "_first",
        "_last_lr",
        "_losses",
        "_lr",
        "_name",
        "_ratio",
        "_samples",
        "_silent",
        "_sizes",
        "_strongest",
        "_thrown",
        "_told",
        "_weights",
        "_worst",
        "_zero",
    )

    def __init__(self, detector: LrTooHigh) -> None:
        self._detector = detector
        self._weights = Weights()
        self._first, self._lr, self._last_lr = math.nan, 0.0, 0.0
        self._losses: deque[float] = deque(maxlen=9)
        self._samples: deque[bool] = deque(maxlen=6)
        self._bad, self._after, self._told = 0, 0, False
        self._thrown = False  # it was a single matrix
        self._name, self._ratio, self._worst = "", 0.0, 0.0
        self._zero: set[str] = set()
        self._sizes: dict[str, float] = {}  # of the weights, as they were first seen
        self._silent: dict[str, int] = {}  # layers that fired once, and for how many looks they have not
        self._strongest = (0.0, 0.0, "", 0.0)  # the update that moved most: by how much, the most in a layer, which, lr

    def check(self, reading: Reading) -> Finding | None:
        if "activations" in reading.facts:
            return self._check_units(reading, reading.facts["activations"]["layers"])
        scalars, tensors = reading.scalars, reading.tensors
        loss = scalars.get("loss", math.nan)
        finite = -math.inf < loss < math.inf
        if finite:
            self._losses.append(loss)
            if self._first != self._first:
                self._first = loss
        if "parameter" in tensors:
            self._weights.learn(reading)
        again = False
        if "update" in tensors:
            again = self._measure(reading)
        self._last_lr = scalars.get("lr/0", 0.0)
        if not self._bad:
            return None
        self._after += 1
        if self._told:
            return self._found(reading, loss) if again and (not finite or self._harm(loss)) else None
        if not finite:
            return self._found(reading, loss) if "loss" in scalars and self._worst > 1.0 and self._after < 50 else None
        if self._bad >= 2 and self._harm(loss):
            return self._found(reading, loss)
        return None

    def _measure(self, reading: Reading) -> bool:
        """Whether this update moved most weight matrices by more than the limit."""
        table = reading.tensors["update"]
        ratios = column(table, "ratio")
        if ratios is None:
            return False
        rows = self._weights.rows(table)
        for at in rows[np.isnan(ratios[rows])]:
            self._zero.add(table.names[at])
        if self._zero:
            rows = np.array([at for at in rows if table.names[at] not in self._zero], dtype=np.intp)
        rows = rows[np.isfinite(ratios[rows])]
        norms = column(table, "norm")
        if norms is not None:  # what has shrunk to nothing moves by its own size however small the steps
            sizes = [float(norms[at] / ratios[at]) if ratios[at] > 0.0 else 0.0 for at in rows]
            first = [self._sizes.setdefault(table.names[at], size) for at, size in zip(rows, sizes, strict=True)]
            rows = rows[np.array([size >= 0.1 * big for size, big in zip(sizes, first, strict=True)], dtype=bool)]
        if not len(rows):
            return False
        values = np.sort(ratios[rows])
        most = float(values[int(0.4 * (len(values) - 1))])  # six of ten move at least so much
        decay = column(table, "decay")
        decays = decay is not None and norms is not None and bool(np.mean(decay[rows] > 0.5 * norms[rows]) > 0.5)
        if most > self._strongest[0] and not decays:
            at = int(rows[int(np.argmax(ratios[rows]))])
            self._strongest = (most, float(ratios[at]), table.names[at], self._rate(reading, at))
        high, one = most > self._detector.moved, float(values[-1])
        if not high and (one > self._detector.thrown or (self._thrown and self._bad and one > self._detector.moved)):
            high, self._thrown, most = True, True, one
        elif high:
            self._thrown = False
        if len(self._samples) == 6:
            self._bad -= self._samples[0]
        self._samples.append(high)
        if high:
            self._bad += 1
            self._worst = max(self._worst, most)
            if self._bad == 1:  # the update that began it: those after it follow from the weights it left behind
                at = int(rows[int(np.argmax(ratios[rows]))])
                self._ratio, self._name = float(ratios[at]), table.names[at]
                self._lr = self._rate(reading, at)
                self._after = 0
        return high

    def _rate(self, reading: Reading, at: int) -> float:
        """The learning rate of the group that holds this parameter; of the first one where that is not known."""
        own = column(reading.tensors["update"], "lr")
        if own is not None and own[at] > 0.0:
            return float(own[at])
        return self._last_lr or max(rates(reading.scalars))

    def _check_units(self, reading: Reading, layers: list[dict[str, Any]]) -> Finding | None:
        """Whether updates have killed a layer that lived, and that nothing gets around."""
        killed = None
        better = bool(self._losses) and median(list(self._losses)) < self._first - 0.02 * abs(self._first)
        for layer in layers:
            if "fired" not in layer:
                continue
            name, units = layer["name"], layer["units"]
            few = units >= 16 and layer["dead"] >= 0.9 * units and layer["never"] < 0.5 * units and not better
            if layer["fired"] and not few:
                self._silent[name] = 0
            elif name in self._silent:
                self._silent[name] += 1
                if self._silent[name] >= 5 and layer["blocks"] and not layer["last"]:
                    killed = layer
        if killed is None or self._strongest[0] <= self._detector.killed or not self._losses:
            return None
        if not self._told:
            self._worst, self._ratio, self._name, self._lr = self._strongest
        finding = self._found(reading, self._losses[-1])
        place = killed["after"] or killed["name"]
        units = killed["units"]
        many = f"{killed['dead']} of the" if killed["fired"] or 0 < killed["dead"] < units else "All"
        message = f"{finding.message} {many} {units} units behind `{place}` have been dead since."
        evidence = {**finding.evidence, "limit": self._detector.killed, "killed": place}
        return replace(finding, severity=Severity.CRITICAL, message=message, evidence=evidence)

    def _harm(self, loss: float) -> bool:
        if self._after < 8 or len(self._losses) < 9:
            return False
        now, first = median(list(self._losses)), self._first
        if now > first + 0.5 * abs(first):
            return True
        return not self._thrown and self._after >= self._detector.patience and now > first - 0.02 * abs(first)

    def _found(self, reading: Reading, loss: float) -> Finding:
        self._told = True
        lr = self._lr
        better = one_digit(lr * self._detector.target / self._ratio)
        finite = math.isfinite(loss)
        now = median(list(self._losses)) if finite else loss
        message = (
            f"lr {number(lr)} moved `{self._name}` by {number(self._ratio)} times its own size in one step;"
            f" the loss went from {number(self._first)} to {number(now)}."
        )
        evidence = {
            "ratio": self._ratio,
            "limit": self._detector.moved,
            "most_weights": self._worst,
            "lr": float(lr),
            "suggested_lr": better,
            "loss": float(now),
            "loss_start": float(self._first),
        }
        advice = [f"Try a learning rate of {better:g}: it would move the weights by about 2 % a step."]
        advice.append("If the rate is needed later on, warm it up over the first few hundred steps.")
        worse = not finite or now > self._first + 0.5 * abs(self._first)
        severity = Severity.CRITICAL if worse else Severity.WARNING
        return found(
            self._detector,
            reading,
            severity,
            message,
            evidence,
            advice=advice,
            where=parameter(self._name, "optimizer"),
        )
