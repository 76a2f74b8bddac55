"""`rank-straggler`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from seismograd.amounts import duration
from seismograd.detectors.ranks.facts import amount, blamed, count, mapping
from seismograd.detectors.running import median
from seismograd.records import Finding, Reading, Severity, Where

_LONG = 8
"""Windows over which what happens now and then is added up."""
_PLAIN = 0.95
"""So often the rank is the last where nobody has to wait for the whole window to know."""
_MOST = 0.6
"""And so much of the step it costs."""
_NOBODY = -1
_WAITING = ("ddp", "fsdp")
"""Trainings whose ranks wait for each other at every step; others do if they are seen in collectives."""
_TIMES = 5
"""Slow steps at least."""


@dataclass(frozen=True)
class RankStraggler:
    """One rank holds the others up at step after step: they wait for it in every collective.

    Why it matters
    --------------
    All ranks go at the pace of the slowest. One of eight that takes a tenth longer costs as much as a machine standing
    idle for most of the day, and every rank shows the same step time, so that nobody sees who it is.

    How it is judged
    ----------------
    By the time of a step that a rank does not spend waiting for others: what the slowest has more than the median is
    lost by all. Over the last `window` compared steps, without the first `warmup`, the same rank has to be last in
    `often` of them or more; the median of what it costs has to be `share` of the median step and `least` seconds or
    more, all of it together `seconds`, and at least half of it there in four of five steps. The phase is the one in
    which it has most more than the median. Ranks that train each for itself, in no collective, wait for nobody.

    A rank that is last only now and then (rank 0 evaluates, saves or logs) is told of only if it costs `dominates` of
    the time or more, in five steps or more, and hardly another is. Noise that falls on one rank and then on another is
    not told of: over eight windows, or as many steps as there were, the rank has to be last in `mostly` of them. Half a
    window is enough where it is last in 95 % of the steps, and costs 60 % of the step.

    What to try
    -----------
    In data: its loader, its disk, its share of the files. In forward or backward: longer samples, another program on
    its device, a device that runs hot or slow. Beside the training: share evaluation out, save and log in a thread of
    its own, or less often.

    An example
    ----------
    Rank 0 evaluates while the others wait at the next all-reduce:

        if rank == 0:
            evaluate(model, validation)         # 40 s, at each of 8 ranks
        evaluate(model, validation_shard)       # instead: each rank its part, and one all_reduce of the sums
    """

    id: ClassVar[str] = "rank-straggler"
    needs: ClassVar[tuple[str, ...]] = ("facts/ranks",)
    follows: ClassVar[tuple[str, ...]] = ("data-starvation", "slow-step", "cpu-pressure", "memory-pressure")

    window: int = 48
    warmup: int = 8
    often: float = 0.85
    mostly: float = 0.8
    share: float = 0.1
    least: float = 0.001
    seconds: float = 0.5
    dominates: float = 0.5

    def start(self) -> _Checker:
        return _Checker(self)


class _Step(NamedTuple):
    who: int
    lost: float
    """What the slowest had more than the median."""
    step: float
    phases: dict[str, float]
    """In which it was the slowest, and by how much."""


class _Checker:
    __slots__ = ("_detector", "_last", "_lasts", "_long", "_seen", "_slow", "_steps", "_whole")

    def __init__(self, detector: RankStraggler) -> None:
        self._detector = detector
        self._steps: deque[_Step] = deque(maxlen=max(1, detector.window))
        self._last: Counter[int] = Counter()
        self._seen = 0
        self._long: deque[tuple[int, float, float]] = deque(maxlen=_LONG * max(1, detector.window))
        self._lasts: Counter[int] = Counter()
        """By rank how often it was the last in those."""
        self._slow: dict[int, tuple[int, float]] = {}
        """By rank its slow steps among them, and what they cost."""
        self._whole = 0.0

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["ranks"], self._detector
        read = _read(facts)
        if read is None:
            return None
        self._seen += 1
        if self._seen <= limits.warmup:
            return None
        if len(self._steps) == self._steps.maxlen:
            oldest = self._steps[0].who
            self._last[oldest] -= 1
            if not self._last[oldest]:
                del self._last[oldest]
        self._steps.append(read)
        self._last[read.who] += 1
        self._remember(read)
        if len(self._steps) < limits.window // 2:
            return None
        finding = self._always(reading, facts)
        whole = len(self._steps) >= limits.window
        return finding or (self._at_times(reading, facts) if whole else None)

    def _always(self, reading: Reading, facts: Mapping[str, Any]) -> Finding | None:
        limits = self._detector
        rank, times = max(self._last.items(), key=lambda item: (item[1], -item[0]))
        early = len(self._steps) < limits.window
        often, mostly, share = (_PLAIN, _PLAIN, _MOST) if early else (limits.often, limits.mostly, limits.share)
        if times < often * len(self._steps) or self._lasts[rank] < mostly * len(self._long):
            return None
        losses = sorted(each.lost if each.who == rank else 0.0 for each in self._steps)
        lost, little = losses[len(losses) // 2], losses[len(losses) // 5]
        step = median([each.step for each in self._steps])
        total = sum(each.lost for each in self._steps if each.who == rank)
        if lost < share * step or lost < limits.least or total < limits.seconds or 2 * little < lost:
            return None
        phase = self._phase(rank, facts)
        message = (
            f"Rank {rank} holds the others up: it is the last in {times} of the latest {len(self._steps)} steps"
            f"{_IN.get(phase, '')}, and costs them {duration(lost)} a step, {lost / step:.0%} of its {duration(step)}."
        )
        if not phase:
            message += " In which phase is not known."
        return self._found(
            reading, facts, message, rank=rank, phase=phase, lost=lost, step=step, limit=share, times=times
        )

    def _at_times(self, reading: Reading, facts: Mapping[str, Any]) -> Finding | None:
        """Whether one rank now and then takes so long that most of the time goes by."""
        limits = self._detector
        if not self._slow or self._whole <= 0:
            return None
        rank, (times, total) = max(self._slow.items(), key=lambda item: (item[1][1], -item[0]))
        every = sum(number for number, _ in self._slow.values())
        if total < limits.dominates * self._whole or total < limits.seconds or times < max(_TIMES, 0.9 * every):
            return None
        phase = self._phase(rank, facts)
        steps = len(self._long)
        message = (
            f"Rank {rank} keeps the others waiting at {times} of the latest {steps} steps{_IN.get(phase, '')}:"
            f" {duration(total / times)} each time, {total / self._whole:.0%} of all the time."
        )
        return self._found(
            reading,
            facts,
            message,
            rank=rank,
            phase=phase,
            lost=total / steps,
            step=self._whole / steps,
            limit=limits.dominates,
            times=times,
        )

    def _remember(self, read: _Step) -> None:
        """Keeps the account of the slow steps over many more steps than the window has."""
        typical = median([each.step for each in self._steps])
        slow = read.lost if read.lost > max(typical, self._detector.least) else 0.0
        if len(self._long) == self._long.maxlen:
            self._book(self._long[0], -1)
        clear = read.lost >= self._detector.share / 2 * read.step  # two that are nearly alike: neither is the last
        self._long.append((read.who if clear else _NOBODY, slow, read.step))
        self._book(self._long[-1], 1)

    def _book(self, entry: tuple[int, float, float], sign: int) -> None:
        who, slow, step = entry
        self._whole += sign * step
        self._lasts[who] += sign
        if not self._lasts[who]:
            del self._lasts[who]
        if slow:
            times, total = self._slow.get(who, (0, 0.0))
            self._slow[who] = times + sign, total + sign * slow
            if not self._slow[who][0]:
                del self._slow[who]

    def _phase(self, rank: int, facts: Mapping[str, Any]) -> str:
        """Where most of it is lost: the phase that explains a third of it at least."""
        lost: dict[str, float] = {}
        total = 0.0
        for each in self._steps:
            if each.who == rank:
                total += each.lost
                for phase, seconds in each.phases.items():
                    lost[phase] = lost.get(phase, 0.0) + seconds
        phase, most = max(lost.items(), key=lambda item: (item[1], item[0]), default=("", 0.0))
        if most >= total / 3:
            return phase
        measured = mapping(facts, "times").keys()
        # the others wait in backward, so that the one that computes there does not stand out
        return "backward" if {"forward", "backward", "optimizer"} <= measured else ""

    def _found(
        self,
        reading: Reading,
        facts: Mapping[str, Any],
        message: str,
        *,
        rank: int,
        phase: str,
        lost: float,
        step: float,
        limit: float,
        times: int,
    ) -> Finding:
        evidence = {
            "phase": phase or "unknown",
            "seconds": lost,
            "share": lost / step if step else 0.0,
            "limit": limit,
            "step_seconds": step,
            "last": times,
            "window": len(self._steps),
            "world": count(facts.get("world"), 2),
        }
        advice = [text.format(rank=rank) for text in _ADVICE.get(phase, _ADVICE[""])]
        where = Where(phase=phase) if phase in _PHASES else Where()
        return blamed(
            self._detector, reading, Severity.WARNING, message, evidence, advice=advice, rank=rank, where=where
        )


def _read(facts: Mapping[str, Any]) -> _Step | None:
    own, times = mapping(facts, "own"), mapping(facts, "times")
    if facts.get("kind", "ddp") not in _WAITING and "collective" not in times:
        return None  # each trains for itself: nobody waits for anybody
    high, middle, rank = amount(own.get("high")), amount(own.get("median")), own.get("who")
    step = mapping(times, "step")
    seconds = amount(step.get("median")) or amount(step.get("high"))
    if high is None or middle is None or not isinstance(rank, int) or seconds is None or seconds <= 0:
        return None
    phases: dict[str, float] = {}
    for phase, told in times.items():
        if phase == "step" or not isinstance(told, Mapping) or told.get("who") != rank or len(phases) >= 16:
            continue
        most, usual = amount(told.get("high")), amount(told.get("median"))
        if most is not None and usual is not None and most > usual:
            phases[str(phase)] = most - usual
    return _Step(rank, max(0.0, high - middle), seconds, phases)


_PHASES = ("data", "forward", "backward", "optimizer")

_IN = {
    "data": ", waiting for its data",
    "forward": ", in the forward pass",
    "backward": ", in the backward pass",
    "optimizer": ", in the optimizer's step",
    "evaluation": ", in evaluation",
    "checkpoint": ", saving checkpoints",
    "logging": ", logging",
    "rest": ", between the steps",
}

_BESIDE = "Share it out over the ranks, do it less often, or in a thread of its own: no rank waits for that."
_DEVICE = (
    "Compare rank {rank}'s device with another: its clock and temperature, other programs on it (`nvidia-smi`, `top`),"
    " the link it is on."
)
_ADVICE: dict[str, tuple[str, ...]] = {
    "data": (
        "Look at rank {rank}'s loader: its disk or network, its share of the files, the processors its workers have.",
        "More workers there (`num_workers`, `prefetch_factor`) hide samples that take long.",
    ),
    "forward": (
        "See whether rank {rank}'s batches are larger or longer: put samples of like lengths together over all ranks.",
        _DEVICE,
    ),
    "backward": (
        "See whether rank {rank}'s batches are larger or longer: put samples of like lengths together over all ranks.",
        _DEVICE,
    ),
    "optimizer": ("See whether rank {rank} does more in its step: other param groups, a larger shard.", _DEVICE),
    "evaluation": ("Evaluate a part of the data on each rank, and add the sums up with `dist.all_reduce`.", _BESIDE),
    "checkpoint": ("`torch.distributed.checkpoint.async_save` writes while the training goes on.", _BESIDE),
    "logging": ("Log every N-th step, and leave `.item()` and histograms out of the others.", _BESIDE),
    "rest": ("Look at what rank {rank} does between its steps: `if rank == 0:` and what stands under it.", _BESIDE),
    "": (_DEVICE,),
}
