"""How long steps take, one way against another, in turn: whatever else runs on the machine falls on all alike."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import torch

from seismograd.costs import samples_in
from seismograd.optimize.measuring import saved_bytes
from seismograd.optimize.tuning.setups import Setup, placed
from seismograd.replay.numbers import tensors_in

BLOCK = 0.03
"""Seconds that a side runs before it is the other's turn: more than a timer's grain, less than most disturbances."""

LEAST, MOST = 6, 24
"""Rounds: with less than 6 there is no interval at 95 %."""

NARROW = 0.02
"""An interval that is no wider need not be made narrower."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of some ratios, and the two order statistics that hold it at 95 %; with less than 6 all are in it."""

    middle: float
    low: float
    high: float
    pairs: int

    @staticmethod
    def of(ratios: Sequence[float]) -> Interval:
        values = sorted(ratios)
        count = len(values)
        inside = 0
        while inside < (count - 1) // 2 and _tail(count, inside + 1) <= 0.025:
            inside += 1
        return Interval(median(values), values[inside], values[count - 1 - inside], count)

    @property
    def sure(self) -> bool:
        """Whether there were enough pairs for an interval."""
        return self.pairs >= LEAST

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.middle if self.middle else math.inf

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}-{self.high:.2f})"


def _tail(count: int, rank: int) -> float:
    """How likely no more than `rank` of so many fall below their median."""
    return float(sum(math.comb(count, below) for below in range(rank + 1)) / 2**count)


class Lane:
    """One side of a comparison: a setup that takes its steps in blocks, with batches from memory or from its loader."""

    def __init__(self, setup: Setup, *, loads: bool = False) -> None:
        self.setup, self.loads = setup, loads and setup.loader is not None
        self.first_seconds: list[float] = []
        """Of the first steps: what is compiled is compiled in them."""
        self.seconds = math.inf
        """A step, when it was warm."""
        self.block_steps = 1

    def warm_up(self, steps: int = 2) -> None:
        """The first steps: one for each shape of a batch, and some more."""
        shapes: dict[Any, Any] = {}
        for batch in self.setup.batches:
            shapes.setdefault(_shapes_of(batch), batch)
        batches = [*list(shapes.values())[:3], *([self.setup.batches[0]] * steps)]
        with self.setup.in_force():
            for batch in batches:
                began = perf_counter()
                self.setup.step(batch)
                synchronize(self.setup.device)
                self.first_seconds.append(perf_counter() - began)
        self.seconds = min(self.first_seconds[-steps:])
        self.block_steps = max(1, min(64, math.ceil(BLOCK / max(self.seconds, 1e-6))))

    @property
    def compile_seconds(self) -> float:
        """What the first steps took longer than warm ones."""
        return max(0.0, sum(self.first_seconds) - len(self.first_seconds) * self.seconds)

    def block(self, steps: int, lead: int = 0) -> float:
        """Seconds for a sample, over so many steps; `lead` steps before them are not counted."""
        step, device = self.setup.step, self.setup.device
        with self._feed() as feed, self.setup.in_force():
            for _ in range(lead + self._prefetched):
                step(next(feed))
            synchronize(device)
            samples, began = 0, perf_counter()
            for _ in range(steps):
                batch = next(feed)
                step(batch)
                samples += samples_in(batch)
            synchronize(device)
            return (perf_counter() - began) / samples

    @property
    def _prefetched(self) -> int:
        """Batches that workers have made before the first one is asked for: the pace is seen after them."""
        loader = self.setup.loader
        if not self.loads or loader is None or not loader.num_workers:
            return 0
        return int(loader.num_workers * (loader.prefetch_factor or 2))

    @contextmanager
    def _feed(self) -> Iterator[Iterator[Any]]:
        """Batches without end. Workers live no longer than the block, so that the other side has the processors."""
        feed = self._loaded() if self.loads else _again(self.setup.batches)
        try:
            yield feed
        finally:
            with suppress(AttributeError):
                feed.close()  # type: ignore[attr-defined]

    def _loaded(self) -> Iterator[Any]:
        loader: Any = self.setup.loader
        try:
            while True:
                empty = True
                for batch in loader:
                    empty = False
                    yield placed(batch, self.setup.device)
                if empty:
                    raise ValueError("the loader gives no batches")
        finally:
            if getattr(loader, "_iterator", None) is not None:  # persistent workers
                with suppress(Exception):
                    loader._iterator._shutdown_workers()
                loader._iterator = None


def compare(
    lanes: Sequence[Lane],
    until: float,
    latest: float | None = None,
    tick: Callable[[], None] | None = None,
    *,
    most: int = MOST,
) -> list[list[float]]:
    """Rounds of the seconds for a sample of each lane, until the time is up or the ratios are known well.

    For enough rounds it goes on until `latest`.

    Each round begins with another one. When to stop is decided by the width of the interval alone, never by where it
    lies: stopping at a lucky moment would make luck look like speed.
    """
    rounds: list[list[float]] = []
    steps = _steps(lanes)
    lead = int(any(lane.setup.threads is not None for lane in lanes))  # new threads have to be started
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        while True:
            taken = [0.0] * len(lanes)
            for turn in range(len(lanes)):
                at = (turn + len(rounds)) % len(lanes)
                taken[at] = lanes[at].block(steps, lead)
            rounds.append(taken)
            if tick is not None:
                tick()
            if len(rounds) >= most:
                return rounds
            now, enough = monotonic(), len(rounds) >= LEAST
            if now > until and (enough or now > (latest or until)):
                return rounds
            if enough and all(speedup(rounds, 0, at).width < NARROW for at in range(1, len(lanes))):
                return rounds
    finally:
        if collecting:
            gc.enable()


def _steps(lanes: Sequence[Lane]) -> int:
    """The steps of a block, the same for all, so that they see the same batches: the slowest has its usual time."""
    fastest = min(lane.seconds for lane in lanes)
    return max(min(lane.block_steps for lane in lanes), min(64, math.ceil(0.1 * BLOCK / max(fastest, 1e-6))))


def speedup(rounds: Sequence[Sequence[float]], base: int, other: int) -> Interval:
    """How many times as fast one lane is as another."""
    return Interval.of([taken[base] / taken[other] for taken in rounds])


# -- memory ----------------------------------------------------------------------------------------------------------


def memory_measure(device: torch.device) -> str:
    """What `peak_memory` measures there."""
    if device.type == "cuda":
        return "the most bytes allocated on the device in a step"
    return "the bytes that are kept for backward in a step"


def peak_memory(setup: Setup) -> int:
    """The bytes that a step takes, as `memory_measure` has it."""
    batch = setup.batches[0]
    with setup.in_force():
        if setup.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(setup.device)
            setup.step(batch)
            return int(torch.cuda.max_memory_allocated(setup.device))
        return saved_bytes(setup.trained, partial(setup.loss, batch))


def synchronize(device: torch.device) -> None:
    """Waits for the device, where it works on its own."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _again(batches: Sequence[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def _shapes_of(batch: Any) -> tuple[Any, ...]:
    return tuple((way, tuple(one.shape), one.dtype) for way, one in tensors_in(batch))
