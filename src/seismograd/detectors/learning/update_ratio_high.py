"""`update-ratio-high`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.tables import Weights, column
from seismograd.detectors.wording import found, number, one_digit, parameter, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class UpdateRatioHigh:
    """One layer is thrown about: each step moves it by a large part of its own size, while the others move little.

    Why it matters
    --------------
    A layer that is replaced with every step learns nothing, and everything above it has to learn on shifting ground.

    How it is judged
    ----------------
    On sampled updates after step `settle`: a weight matrix moves by more than `ratio` times its norm in `samples`
    samples in a row, ten times more than the median of the other weight matrices. Biases, norms, embeddings, and
    weights that start at zero or have shrunk to nothing do not count.

    What to try
    -----------
    A parameter group with a lower learning rate for that layer, a larger initialisation, or a normalisation layer in
    front of it.

    An example
    ----------
    A scale that starts tiny gets the same rate as the matrices:

        optimizer = Adam([{"params": body}, {"params": head, "lr": 1e-4}], lr=1e-2)  # a group of its own for it
    """

    id: ClassVar[str] = "update-ratio-high"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    follows: ClassVar[tuple[str, ...]] = (
        "lr-too-high",
        "lr-jump",
        "bad-initialization",
        "gradient-explosion",
        "loss-explosion",
        "missing-zero-grad",
        "accumulation-mismatch",
    )

    ratio: float = 0.5
    samples: int = 3
    settle: int = 20

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_sizes", "_times", "_weights")

    def __init__(self, detector: UpdateRatioHigh) -> None:
        self._detector = detector
        self._weights = Weights()
        self._sizes: dict[str, float] = {}
        self._times: dict[str, int] = {}

    def check(self, reading: Reading) -> Finding | None:
        tensors = reading.tensors
        if "parameter" in tensors:
            parameters = self._weights.learn(reading)
            norms = column(parameters, "norm") if parameters is not None else None
            if parameters is not None and norms is not None:
                for at in self._weights.rows(parameters):
                    self._sizes.setdefault(parameters.names[at], float(norms[at]))
        table = tensors.get("update")
        limits = self._detector
        if table is None or reading.step <= limits.settle:
            return None
        ratios, moves = column(table, "ratio"), column(table, "norm")
        if ratios is None or moves is None:
            return None
        rows = self._weights.rows(table)
        rows = rows[np.isfinite(ratios[rows]) & (ratios[rows] > 0.0)]
        high = rows[ratios[rows] > limits.ratio]
        if not len(high):
            if self._times:
                self._times = {}
            return None
        usual = float(np.median(ratios[rows]))
        times = {}
        for at in high:
            name, size = table.names[at], float(moves[at] / ratios[at])
            if len(rows) >= 3 and ratios[at] > 10.0 * usual and size > 0.01 * self._sizes.get(name, 0.0) > 0.0:
                times[name] = self._times.get(name, 0) + 1
        self._times = times
        lasting = [at for at in high if times.get(table.names[at], 0) >= limits.samples]
        if not lasting:
            return None
        at = max(lasting, key=lambda row: float(ratios[row]))
        name, ratio = table.names[at], float(ratios[at])
        lr = max(rates(reading.scalars))
        message = (
            f"Each step moves `{name}` by {number(ratio)} times its own size, and the other weights by {number(usual)}"
            f" (lr {number(lr)}, step {reading.step})."
        )
        evidence = {"ratio": ratio, "limit": limits.ratio, "others": usual, "samples": times[name], "lr": float(lr)}
        advice = [
            f"Give `{name}` its own parameter group with a learning rate of about {one_digit(lr * 0.01 / ratio):g}.",
            "Or start it larger, or put a normalisation layer in front of it.",
        ]
        return found(
            limits, reading, Severity.WARNING, message, evidence, advice=advice, where=parameter(name, "optimizer")
        )
