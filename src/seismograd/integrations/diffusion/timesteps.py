"""The loss of a diffusion model by timestep: running means in buckets, and which of them is sick."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from seismograd.detectors.wording import number
from seismograd.integrations.diffusion.schedulers import NO_SIGNAL, predicts, snr_at
from seismograd.records import Finding, Severity, Where, rank

MEMORY = 64
"""Samples that a running mean remembers."""
ENOUGH = 3 * MEMORY
"""Samples after which a bucket is judged."""
RUNS_AWAY = 4.0
"""Times its own best; and above where it began, while the others stay."""
WORSE_THAN_NOTHING = 1.2
"""Noise has a variance of 1: who predicts nothing has a loss of 1."""
_SHOWN = 8


@dataclass
class Bucket:
    """Timesteps next to one another, and the losses of the samples that were drawn there."""

    low: float
    high: float
    whole: bool
    count: int = 0
    bad: int = 0
    total: float = 0.0
    recent: float = 0.0
    began: float = 0.0
    """The mean of its first samples."""
    best: float = math.inf
    bad_timesteps: Counter[float] = field(default_factory=Counter)

    @property
    def label(self) -> str:
        return f"{self.low:.0f}-{self.high - 1:.0f}" if self.whole else f"{self.low:g}-{self.high:g}"

    def add(self, timestep: float, loss: float) -> None:
        if not math.isfinite(loss):
            self.bad += 1
            if len(self.bad_timesteps) < 1000:
                self.bad_timesteps[timestep] += 1
            return
        self.count += 1
        self.total += loss
        self.recent += (loss - self.recent) * max(1 / self.count, 1 / MEMORY)
        if self.count <= MEMORY // 2:
            self.began = self.recent
        else:
            self.best = min(self.best, self.recent)

    def to_dict(self) -> dict[str, Any]:
        seen = self.count > 0
        return {
            "timesteps": self.label,
            "samples": self.count + self.bad,
            "loss": self.recent if seen else None,
            "mean": self.total / self.count if seen else None,
            "first": self.began if seen else None,
            "nonfinite": self.bad,
        }


class LossByTimestep:
    """The buckets of one training. `top` is the number of timesteps, or 1.0 where time runs from 0 to 1."""

    def __init__(self, top: float, buckets: int = 10) -> None:
        self.top = top
        whole = top > 1
        number_of = max(1, min(buckets, int(top) if whole else buckets))
        edges = [top * at / number_of for at in range(number_of + 1)]
        if whole:
            edges = [float(math.ceil(edge)) for edge in edges]
        self.buckets = [Bucket(low, high, whole) for low, high in pairwise(edges)]

    def add(self, timesteps: Sequence[float], losses: Sequence[float]) -> list[tuple[float, float]]:
        """Takes a batch in; returns the samples whose loss is not finite."""
        bad = []
        for timestep, loss in zip(timesteps, losses, strict=True):
            self.bucket_of(timestep).add(timestep, loss)
            if not math.isfinite(loss):
                bad.append((timestep, loss))
        return bad

    def bucket_of(self, timestep: float) -> Bucket:
        for bucket in self.buckets:
            if timestep < bucket.high:
                return bucket
        return self.buckets[-1]

    def table(self) -> list[dict[str, Any]]:
        return [bucket.to_dict() for bucket in self.buckets]

    def lines(self) -> str:
        """The table as text, with a bar for the loss."""
        rows = self.table()
        most = max((row["loss"] for row in rows if row["loss"] is not None), default=0.0) or 1.0
        lines = [f"{'timesteps':>11}  {'samples':>7}  {'first':>8}  {'now':>8}"]
        for row in rows:
            if row["loss"] is None:
                told = f"{'-':>8}  {'-':>8}"
            else:
                told = f"{row['first']:8.4f}  {row['loss']:8.4f}  {'#' * round(24 * row['loss'] / most)}"
            bad = f"  {row['nonfinite']} not finite" if row["nonfinite"] else ""
            lines.append(f"{row['timesteps']:>11}  {row['samples']:>7}  {told}{bad}")
        return "\n".join(lines)

    # -- what is wrong -------------------------------------------------------------------------------------------

    def nonfinite(self, bad: Sequence[tuple[float, float]], scheduler: Any, step: int) -> Finding | None:
        """The finding about losses that are not finite at some timesteps."""
        if not bad:
            return None
        at: Counter[float] = Counter()
        for bucket in self.buckets:
            at.update(bucket.bad_timesteps)
        where = sorted(at)
        fine = sum(bucket.count for bucket in self.buckets)
        shown = ", ".join(f"{each:g}" for each in where[:_SHOWN]) + (" ..." if len(where) > _SHOWN else "")
        ratios = {each: snr_at(scheduler, each) for each in where[:_SHOWN]}
        known = [ratio for ratio in ratios.values() if ratio is not None]
        message = f"The loss is {number(bad[0][1])} at timestep{'s' if len(where) > 1 else ''} {shown}, at step {step}"
        advice = [
            "Look at what the loss of these samples is multiplied with or divided by: weights by SNR, sigmas, alphas.",
        ]
        if len(where) <= max(1, self.top // 20) and fine > 4 * sum(at.values()):
            message += f"; the {fine} samples at other timesteps were finite"
        if known and all(ratio < NO_SIGNAL for ratio in known):
            message += (
                ". There the signal-to-noise ratio is 0 (zero terminal SNR): a weight that divides by it is not finite"
            )
            advice = [
                "min-SNR weights for v_prediction divide by SNR + 1: `torch.minimum(snr, gamma) / (snr + 1)`;"
                " for epsilon they divide by SNR, so epsilon cannot be trained with zero terminal SNR.",
                "Or draw timesteps below the last one.",
            ]
        elif known and all(math.isinf(ratio) for ratio in known):
            message += ". There is no noise at all there: the signal-to-noise ratio is infinite"
            advice = ["Draw timesteps from 1 on, or clamp the ratio: `snr.clamp(max=1e4)`."]
        evidence = {
            "timesteps": where[:_SHOWN],
            "count_at": dict(at.most_common(_SHOWN)),
            "snr": ratios,
            "finite": fine,
        }
        return Finding(
            "nonfinite-loss",
            Severity.CRITICAL,
            step,
            message + ".",
            rank(),
            Where(phase="loss"),
            evidence,
            tuple(advice),
        )

    def runaway(self, step: int) -> Finding | None:
        """The finding about a bucket whose loss rises while that of the others does not."""
        seen = [bucket for bucket in self.buckets if bucket.count >= ENOUGH]
        for bucket in seen:
            others = [other.recent / other.best for other in seen if other is not bucket and other.best > 0]
            if bucket.recent <= max(RUNS_AWAY * bucket.best, bucket.began) or len(others) < 2 or median(others) > 1.5:
                continue
            return Finding(
                "loss-explosion",
                Severity.WARNING,
                step,
                f"The loss at timesteps {bucket.label} has risen to {number(bucket.recent)}, from"
                f" {number(bucket.best)} at its best; at other timesteps it has not.",
                rank(),
                Where(phase="loss"),
                {
                    "timesteps": bucket.label,
                    "loss": bucket.recent,
                    "best": bucket.best,
                    "first": bucket.began,
                    "limit": max(RUNS_AWAY * bucket.best, bucket.began),
                    "series": f"timesteps {bucket.label}",
                },
                (
                    "Look at how the loss is weighted there, and whether gradients of these timesteps stand out: clip"
                    " them, or weight by min-SNR.",
                ),
            )
        return None

    def worse_than_nothing(self, scheduler: Any, step: int) -> Finding | None:
        """The finding about a loss at the noisiest timesteps above that of a model which predicts nothing.

        It is where noise is easiest to predict: the input is almost nothing else. A model that has learned velocity
        gives the image there instead.
        """
        low, high = self.buckets[0], self.buckets[-1]
        if predicts(scheduler) != "epsilon" or high is low or min(low.count, high.count) < ENOUGH:
            return None
        snr = snr_at(scheduler, high.low)
        if snr is None or snr > 0.1 or high.recent < WORSE_THAN_NOTHING or low.recent > 0.7 * high.recent:
            return None
        return Finding(
            "loss-input-mismatch",
            Severity.WARNING,
            step,
            f"At the noisiest timesteps ({high.label}) the loss is {number(high.recent)}, above the 1 of a model that"
            f" predicts nothing, and larger than at the clearest ({low.label}: {number(low.recent)}). With"
            " prediction_type='epsilon' these are the easiest: the model may have been trained to predict velocity.",
            rank(),
            Where(phase="loss"),
            {"noisiest": high.recent, "clearest": low.recent, "limit": WORSE_THAN_NOTHING, "series": "target shape"},
            (
                "Check the target: for 'v_prediction' it is `noise_scheduler.get_velocity(latents, noise, timesteps)`,"
                " for 'epsilon' the noise. A model that was trained for one has to go on with it.",
            ),
        )
