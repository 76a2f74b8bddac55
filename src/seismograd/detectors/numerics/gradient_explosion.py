"""`gradient-explosion`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seismograd.detectors.running import First, Window
from seismograd.detectors.tables import Weights, agreement, column
from seismograd.detectors.wording import found, number, one_digit, parameter
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class GradientExplosion:
    """The gradient is far larger than this run has ever had it, or grows with every layer towards the input.

    Why it matters
    --------------
    One step along such a gradient throws the weights far away from what was learned, and often to NaN.

    How it is judged
    ----------------
    The norm is held against the run's own: the larger of the median of the last 64 readings and the median of the
    first 20, and the largest norm so far, from reading `settle` on. It is an explosion when the norm is `extreme`
    times the usual one at once, when it stays above `far` times the usual for `sustained` readings and the loss has
    neither risen by as much nor come down below where it was, or when it grows by more than 1.2 for each of `streak`
    readings together with the loss, 100 times in all. One outlier batch that is gone at the next reading is noted as
    info. In the first steps, the norms of the weight matrices are also compared across depth: `depth_ratio` times
    more at the input than at the output is too much.

    What to try
    -----------
    Clip with `torch.nn.utils.clip_grad_norm_` a little above the usual norm, lower the learning rate or warm it up,
    look at the batch of that step, and check the initialisation and normalisation of deep or recurrent models.

    An example
    ----------
    A recurrent net over long sequences, without clipping:

        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # was missing
        optimizer.step()
    """

    id: ClassVar[str] = "gradient-explosion"
    needs: ClassVar[tuple[str, ...]] = ("grad/norm",)
    follows: ClassVar[tuple[str, ...]] = (
        "lr-too-high",
        "lr-jump",
        "bad-initialization",
        "unnormalized-input",
        "unnormalized-target",
        "input-drift",
        "missing-zero-grad",
        "loss-input-mismatch",
        "label-out-of-range",
        "accumulation-mismatch",
        "unshuffled-data",
    )

    extreme: float = 1e3
    far: float = 100.0
    sustained: int = 5
    streak: int = 8
    settle: int = 5
    depth_ratio: float = 1e4

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_count",
        "_detector",
        "_early",
        "_episode",
        "_from_loss",
        "_from_norm",
        "_growing",
        "_high",
        "_last",
        "_losses",
        "_peak",
        "_weights",
        "_window",
    )

    def __init__(self, detector: GradientExplosion) -> None:
        self._detector = detector
        self._window, self._early, self._losses = Window(64), First(20), Window(64)
        self._count, self._peak = 0, 0.0
        self._high, self._episode = 0, 0.0
        self._growing, self._last, self._from_norm, self._from_loss = 0, math.inf, 0.0, math.nan
        self._weights = Weights()

    @property
    def suspects(self) -> bool:
        """Whether the norm is out of the run's range at present, for however short."""
        return self._high > 0

    def check(self, reading: Reading) -> Finding | None:
        norm = reading.scalars["grad/norm"]
        if not 0.0 < norm < math.inf or "amp-skipped" in reading.marks:
            return None
        limits = self._detector
        self._count += 1
        if self._count <= 6:
            deep = self._across_depth(reading)
            if deep is not None:
                return deep
        growing = self._grows(reading, norm)
        if self._count > limits.settle and len(self._window):
            usual = max(self._window.median, self._early.median)
            if norm > limits.far * usual and norm > 10.0 * self._peak:
                return self._judge(reading, norm, usual)
        if self._high:  # it is over: from now on the run has seen that much
            self._high = 0
            self._peak = max(self._peak, self._episode)
            self._episode = 0.0
        self._peak = max(self._peak, norm)
        self._window.add(norm)
        loss = abs(reading.scalars.get("loss", 0.0))
        if 0.0 < loss < math.inf:
            self._losses.add(loss)
        if self._count <= 20:
            self._early.add(norm)
        return growing

    def _judge(self, reading: Reading, norm: float, usual: float) -> Finding | None:
        """A norm out of range: it does not enter the statistics it is judged by."""
        limits = self._detector
        self._high += 1
        self._episode = max(self._episode, norm)
        times = norm / usual
        # Early on the range of the run is hardly known: only what no start explains counts.
        extreme = limits.extreme if self._count > 20 else 10.0 * limits.extreme
        lasting = self._high >= limits.sustained and self._count > 20
        if not lasting and (times < extreme or norm < 30.0 * self._peak):
            return None
        if times < extreme and (self._follows_loss(reading, times) or self._learns(reading)):
            return None
        sure = lasting or self._high >= 2 or times >= 1e3 * limits.extreme
        clip = one_digit(2.0 * usual)
        message = (
            f"The gradient's norm is {number(norm)} at step {reading.step}, {number(times)} times what is usual"
            " in this run"
            f" ({number(usual)})" + (f", for {self._high} readings." if self._high > 1 else ".")
        )
        evidence = {
            "norm": float(norm),
            "usual": float(usual),
            "times": float(times),
            "limit": float(limits.far if lasting else extreme),
            "readings": self._high,
        }
        advice = [f"Clip gradients: `torch.nn.utils.clip_grad_norm_(parameters, {clip:g})`, twice the usual norm."]
        if sure:
            advice.append(
                f"Look at the batch of step {reading.step}, and lower the learning rate or warm it up if this"
                " comes back."
            )
        else:
            advice.append(f"If it stays the only one, the batch of step {reading.step} was an outlier: look at it.")
        severity = Severity.CRITICAL if sure else Severity.INFO
        return found(limits, reading, severity, message, evidence, advice=advice, where=Where(phase="backward"))

    def _follows_loss(self, reading: Reading, times: float) -> bool:
        """Whether the loss has risen by as much: targets of another size (a first reward), or a run that
        `loss-explosion` will name."""
        usual = self._losses.median if len(self._losses) else 0.0
        return abs(reading.scalars.get("loss", 0.0)) >= times * usual > 0.0

    def _learns(self, reading: Reading) -> bool:
        """Whether the loss is below all that it was before the norm rose: the run has left a saddle, and goes down."""
        loss = reading.scalars.get("loss", math.nan)
        return len(self._losses) > 0 and 0.0 < loss < self._losses.lowest

    def _grows(self, reading: Reading, norm: float) -> Finding | None:
        """Norms that multiply from reading to reading while the loss rises too: leaving a saddle lowers it instead."""
        limits = self._detector
        if norm <= 1.2 * self._last:
            self._growing, self._last, self._from_norm = 0, norm, norm
            self._from_loss = reading.scalars.get("loss", math.nan)
            return None
        self._growing += 1
        self._last = norm
        if self._growing < limits.streak or norm < limits.far * self._from_norm:
            return None
        loss, before = reading.scalars.get("loss", math.nan), self._from_loss
        times = norm / self._from_norm
        worse = loss > before + 0.5 * abs(before) if math.isfinite(loss) and math.isfinite(before) else times > 1e4
        if not worse:
            return None
        a_step = times ** (1.0 / self._growing)
        message = (
            f"The gradient's norm grew {self._growing} readings in a row, {number(times)} times in all,"
            f" to {number(norm)} at step {reading.step}: about {number(a_step)} times each step."
        )
        evidence = {"norm": float(norm), "from": float(self._from_norm), "times": float(times), "limit": limits.far}
        advice = [
            "The run diverges: lower the learning rate 10 times, or warm it up over some hundred steps.",
            f"Clip gradients: `torch.nn.utils.clip_grad_norm_(parameters, {one_digit(2.0 * self._from_norm):g})`.",
        ]
        return found(
            limits, reading, Severity.CRITICAL, message, evidence, advice=advice, where=Where(phase="backward")
        )

    def _across_depth(self, reading: Reading) -> Finding | None:
        self._weights.learn(reading)
        table = reading.tensors.get("gradient")
        norms = column(table, "norm") if table is not None else None
        if table is None or norms is None:
            return None
        rows = self._weights.rows(table)
        rows = rows[norms[rows] > 0.0]
        if len(rows) < 5:
            return None
        deep = np.log(norms[rows])
        if not np.isfinite(deep).all():
            return None
        quarter = max(1, len(deep) // 4)
        ratio = math.exp(min(700.0, float(np.median(deep[:quarter]) - np.median(deep[-quarter:]))))
        if ratio < self._detector.depth_ratio or agreement(-deep) < 0.8:
            return None
        first, last = table.names[int(rows[0])], table.names[int(rows[-1])]
        a_layer = ratio ** (1.0 / (len(rows) - 1))
        message = (
            f"Gradients explode across depth: `{first}` gets {number(ratio)} times the gradient of `{last}`,"
            f" about {number(a_layer)} times more for each of {len(rows)} layers."
        )
        evidence = {
            "ratio": float(ratio),
            "limit": self._detector.depth_ratio,
            "layers": len(rows),
            "a_layer": float(a_layer),
        }
        advice = [
            f"Scale the initial weights by about {number(1.0 / a_layer)}, or use `kaiming_normal_`/`xavier_uniform_`.",
            "Add normalisation layers or residual connections between the layers.",
        ]
        return found(
            self._detector,
            reading,
            Severity.WARNING,
            message,
            evidence,
            advice=advice,
            where=parameter(first, "backward"),
        )
