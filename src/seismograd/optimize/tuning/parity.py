"""Whether a variant still learns the same: outputs, gradients and a short loss curve, next to float64 and other seeds.

What float32 itself loses against float64 is the scale for outputs and gradients; what the baseline does with other
seeds (data order, dropout, weights that differ in the last bit) is the scale for the loss curve and for where the
weights go. The seeds' spread is wide, so that the first steps are compared one by one too: with the same batches and
random numbers, what learns the same moves the weights the same way. A variant in a narrower type may err by as much
more as its type is coarser, but its curve has to stay where the seeds' are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from seismograd.optimize.tuning.setups import Bench, Setup
from seismograd.optimize.tuning.walks import (
    averaged,
    disturbed,
    first_batch,
    in_double,
    numbers,
    order_of,
    seeded,
    walked,
)

SEEDS = 3
PASSES = 3
_ROOM = 1.5
"""The seeds are few: a variant may lie so many times as far out as the farthest of them."""

_ROUNDING = 8.0
"""Another order of summation may err so many times as much."""

_OUTPUTS, _GRADIENTS = 1e-4, 1e-3
"""Relative errors that never matter: what skips a layer or half of a batch errs by a hundredth and more."""

_COARSE = 0.3
"""Relative error that no rounding excuses."""

_EARLY = 4
"""So many steps are compared one by one: rounding has not yet grown into another course."""

_STEPS, _COARSE_STEPS = 0.01, 0.4
"""Relative errors of a step: what never matters, and what no rounding excuses. Adam makes much of small ones."""

_STRAYED = 0.05
"""The weights may always end so far apart, relative to the way that they went."""

_STUCK = 0.95
"""Weights that do not move at all are 1 apart, so that the seeds are no excuse for more than this."""

_PROGRESS = 0.02
"""The loss may always differ by so much of what it fell."""


@dataclass(frozen=True, slots=True)
class Parity:
    """How far a variant lies from the reference, and how far it may. `ok` says that it learns the same."""

    ok: bool
    verdict: str
    """In a few words: `the same`, `bfloat16's rounding`, `within the seeds' spread`, or what differs."""
    outputs: float
    gradients: float
    """Relative errors on the first batch, with the weights as they were."""
    loss: float
    """The largest difference of the loss, averaged over all batches, in any pass over them."""
    weights: float
    """How far apart the weights are in the end, relative to how far they went."""
    steps: float
    """The largest relative difference of what one of the first steps did to the weights."""
    allowed: dict[str, float]
    """The same five, as far as they may go."""
    curve: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Trace:
    """What one training did."""

    output: list[Tensor]
    gradients: list[Tensor]
    curve: list[float]
    weights: list[Tensor]
    moves: list[list[Tensor]] = field(default_factory=list)
    """What each of the first steps added to the weights."""
    averaged: bool = False
    """Whether output and gradients are the means over other random numbers."""


class Reference:
    """What the baseline does, in float64 where that works, and how far its seeds lie apart."""

    def __init__(
        self,
        bench: Bench,
        batches: int,
        passes: int = PASSES,
        tick: Callable[[], None] | None = None,
        late: Callable[[], bool] = lambda: False,
    ) -> None:
        """When it is `late` there are no more seeds than one: with fewer, less is let pass."""
        self.bench = bench
        self.width = max(1, min(batches, len(bench.batches)))
        """So many batches make a pass."""
        self.steps = passes * self.width
        self.mean: Drawn | None = None
        """Of the baseline over many random numbers, where it draws any."""
        self.dtype = _dtype_of(bench)
        start = bench.setup()
        self.start = numbers(start.trained.parameters())
        self.plain = self.trace(start)
        self.kind, self.exact = "the baseline", self.plain
        if tick is not None:
            tick()
        if self.dtype is not torch.float64:
            try:
                wide = self.trace(in_double(bench.setup()))
                if _finite(wide):
                    self.kind, self.exact = "float64", wide
            except Exception:  # an op without float64, a type that is written out in the model
                pass
        self.seeds: list[Trace] = []
        for seed in range(1, SEEDS + 1):
            if tick is not None:
                tick()
            if self.seeds and late():
                break
            self.seeds.append(self.trace(disturbed(bench.setup(), seed), seed))
        self.noise = self._noise()
        if self.noise.spread_gradients > self.noise.plain_allowed["gradients"]:
            means = [averaged(bench.setup(), bench.batches[0], bench.randomness, first) for first in (100, 200)]
            self.mean = Drawn(*means[0], _apart(means[1][0], means[0][0]), _apart(means[1][1], means[0][1]))

    def trace(self, setup: Setup, seed: int = 0, *, merged: int = 1, draws: bool = False) -> Trace:
        """Outputs and gradients on the first batch, then some steps. `merged` batches at a time go into a step.

        What `draws` random numbers of its own, in a training that has any, is averaged over many of them.
        """
        if merged > 1 and self.width % merged:
            raise ValueError(f"{self.width} batches cannot be joined {merged} at a time")
        randomness, batches = self.bench.randomness, setup.batches[: self.width]
        with setup.in_force():
            over_many = draws and self.mean is not None
            if over_many:
                output, gradients = averaged(setup, batches[0], randomness, 300)
            else:
                seeded(randomness, seed)
                output, gradients = first_batch(setup, batches[0])
            seeded(randomness, seed)
            order = order_of(batches, seed, self.steps, merged)
            losses, moves = walked(setup, order, early=0 if seed or merged > 1 or over_many else _EARLY)
        curve = [float(loss) for loss in losses]
        return Trace(output, gradients, curve, numbers(setup.trained.parameters()), moves, over_many)

    def judge(self, trace: Trace, dtype: torch.dtype | None = None, *, merged: int = 1) -> Parity:
        """Whether what was traced learns the same as the reference. `dtype` is the type that it computes in.

        A trace of averages only has to be as near to those of the baseline as others of them are.
        """
        eps = _eps(dtype, self.dtype)
        allowed = self.noise.allowed(eps, _eps(None, self.dtype))
        exact, right_first = self.exact, self.exact
        if trace.averaged:
            assert self.mean is not None
            right_first = Trace(self.mean.output, self.mean.gradients, [], [])
            allowed["outputs"] = max(allowed["outputs"], _ROOM * self.mean.spread_output)
            allowed["gradients"] = max(allowed["gradients"], _ROOM * self.mean.spread_gradients)
        found = {
            "outputs": _apart(trace.output, right_first.output) if merged == 1 else 0.0,
            "gradients": _apart(trace.gradients, right_first.gradients) if merged == 1 else 0.0,
            "weights": self._strayed(trace),
            "steps": _steps_apart(trace.moves, exact.moves),
        }
        means, right = _means(trace.curve, self.width // merged), _means(exact.curve, self.width)
        gaps = [abs(one - other) for one, other in zip(means, right, strict=False)]
        found["loss"] = max(gaps) if gaps and all(map(math.isfinite, gaps)) else math.inf
        scale = max(abs(value) for value in right) if right else 0.0
        allowed["loss"] += 0.0 if dtype is None else eps * scale
        plain = self.noise.plain_allowed if merged == 1 else dict.fromkeys(found, -1.0)
        verdict = _verdict(found, allowed, plain, dtype if merged == 1 else None)
        ok = all(found[name] <= allowed[name] for name in found)
        return Parity(ok=ok, verdict=verdict, allowed=allowed, curve=tuple(trace.curve), **found)

    def _strayed(self, trace: Trace) -> float:
        if [one.shape for one in trace.weights] != [one.shape for one in self.exact.weights]:
            return math.inf
        return _distance(trace.weights, self.exact.weights) / max(_distance(self.exact.weights, self.start), 1e-30)

    def _shaken(self) -> list[list[Tensor]]:
        """The first steps with weights that differ in the last bit, and nothing else."""
        setup = disturbed(self.bench.setup(), 1)
        order = order_of(setup.batches[: self.width], 0, min(_EARLY, self.steps), 1)
        with setup.in_force():
            seeded(self.bench.randomness, 0)
            return walked(setup, order, early=_EARLY)[1]

    def _noise(self) -> Noise:
        exact, everyone = self.exact, [self.plain, *self.seeds]
        right = _means(exact.curve, self.width)
        gaps = [
            abs(one - other)
            for trace in everyone
            for one, other in zip(_means(trace.curve, self.width), right, strict=False)
        ]
        fell = abs(right[0] - right[-1]) if len(right) > 1 else abs(exact.curve[0] - exact.curve[-1])
        return Noise(
            outputs=_apart(self.plain.output, exact.output),
            gradients=_apart(self.plain.gradients, exact.gradients),
            spread_gradients=max((_apart(one.gradients, exact.gradients) for one in self.seeds), default=0.0),
            loss=max(gaps, default=0.0),
            fell=fell,
            weights=max(self._strayed(one) for one in everyone),
            steps=max(_steps_apart(moves, exact.moves) for moves in (self.plain.moves, self._shaken())),
            eps=_eps(None, self.dtype),
        )


@dataclass(frozen=True, slots=True)
class Drawn:
    """Mean outputs and gradients over many random numbers, and how far another such mean lies from it."""

    output: list[Tensor]
    gradients: list[Tensor]
    spread_output: float
    spread_gradients: float


@dataclass(frozen=True, slots=True)
class Noise:
    """What the baseline differs by from the reference, by rounding and by chance."""

    outputs: float
    gradients: float
    spread_gradients: float
    loss: float
    fell: float
    weights: float
    steps: float
    eps: float

    @property
    def plain_allowed(self) -> dict[str, float]:
        """What a variant may differ by that computes in the same type and draws the same numbers."""
        return self.allowed(self.eps, self.eps)

    def allowed(self, eps: float, own: float) -> dict[str, float]:
        """What may be differed by with a rounding of `eps`, `own` being the baseline's."""
        outputs, gradients = (
            max(least, min(_COARSE, _ROUNDING * max(error / own, 4.0) * eps))
            for error, least in ((self.outputs, _OUTPUTS), (self.gradients, _GRADIENTS))
        )
        coarser = min(_COARSE_STEPS, _ROUNDING * max(self.steps / own, 4.0) * eps) if eps > own else 0.0
        return {
            "outputs": outputs,
            "gradients": gradients,
            "loss": max(_ROOM * self.loss, _PROGRESS * self.fell),
            "weights": max(min(_ROOM * self.weights, _STUCK), 1.1 * self.weights, _STRAYED),
            "steps": max(_STEPS, 2 * self.steps, coarser),
        }


def _verdict(
    found: dict[str, float], allowed: dict[str, float], plain: dict[str, float], dtype: torch.dtype | None
) -> str:
    wrong = [name for name in ("outputs", "gradients", "steps", "loss", "weights") if not found[name] <= allowed[name]]
    if wrong:
        name = wrong[0]
        if not math.isfinite(found[name]):
            return f"{name} not comparable" if name != "loss" else "loss not finite"
        return f"{name} off by {found[name]:.2g}"
    if found["outputs"] <= plain["outputs"] and found["gradients"] <= plain["gradients"]:
        return "the same"
    if dtype is not None:
        return f"{str(dtype).removeprefix('torch.')}'s rounding"
    return "within the seeds' spread"


# -- numbers ---------------------------------------------------------------------------------------------------------


def _apart(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """The relative error of some tensors, all taken as one; infinite where they are not of the same shapes."""
    if [one.shape for one in found] != [one.shape for one in right]:
        return math.inf
    size = math.hypot(*(float(one.norm()) for one in right)) if right else 0.0
    error = _distance(found, right)
    if not math.isfinite(error):
        return 0.0 if not math.isfinite(size) else math.inf
    return error / size if size else (0.0 if not error else math.inf)


def _steps_apart(found: Sequence[Sequence[Tensor]], right: Sequence[Sequence[Tensor]]) -> float:
    """The largest relative error of a step; none where steps were not kept."""
    return max((_apart(one, other) for one, other in zip(found, right, strict=False)), default=0.0)


def _distance(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    return math.hypot(*(float((one - other).norm()) for one, other in zip(found, right, strict=True)), 0.0)


def _means(curve: Sequence[float], length: int) -> list[float]:
    """The mean loss of each whole pass."""
    length = max(1, length)
    return [fmean(curve[at : at + length]) for at in range(0, len(curve) - length + 1, length)]


def _finite(trace: Trace) -> bool:
    return all(map(math.isfinite, trace.curve))


def _eps(dtype: torch.dtype | None, own: torch.dtype) -> float:
    wider = max(torch.finfo(one).eps for one in (dtype or own, own))
    return float(wider)


def _dtype_of(bench: Bench) -> torch.dtype:
    kinds = {one.dtype for one in bench.model.parameters() if one.is_floating_point()}
    return max(kinds, key=lambda kind: torch.finfo(kind).eps) if kinds else torch.float32
