"""`rank-same-data`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.ranks.facts import LISTED, REPLICATED, blamed, capital, count, groups_in, mapping, who
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class RankSameData:
    """Several ranks train on the very same batches: they do the same work, and the rest of the data is seen less often.

    Why it matters
    --------------
    Four ranks with the same batch compute the same gradient four times, and average it: as slow as one rank, at the
    price of four, with a batch four times as small as the learning rate was chosen for. Nothing fails, and the loss
    falls.

    How it is judged
    ----------------
    A checksum of each rank's batch: the same on two ranks or more at `steps` steps in a row. Not for tensor and
    pipeline parallel ranks, which share a batch by design, and not for ranks that train something else each.

    What to try
    -----------
    Hand the samples out: `DataLoader(..., sampler=DistributedSampler(dataset))`. A stream has to be shared out by the
    dataset itself, by rank and by worker. Data that is made by a random generator needs another seed on each rank.

    An example
    ----------

        loader = DataLoader(dataset, shuffle=True)                            # the same seed: the same order everywhere
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))     # instead: each rank its share
    """

    id: ClassVar[str] = "rank-same-data"
    needs: ClassVar[tuple[str, ...]] = ("facts/ranks",)
    follows: ClassVar[tuple[str, ...]] = ("rank-sampler",)

    steps: int = 5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: RankSameData) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["ranks"], self._detector
        batches = mapping(facts, "batches")
        groups = [group for group in groups_in(batches.get("same")) if len(group) > 1]
        steps = count(batches.get("steps"))
        if not groups or steps < limits.steps or facts.get("kind", "ddp") not in REPLICATED:
            return None
        world, first = count(facts.get("world"), 2), groups[0]
        if len(first) == world == 2:
            message = f"Ranks {first[0]} and {first[1]} were given the very same batch at {steps:,} steps in a row"
        elif len(groups) == 1 and len(first) >= min(world, LISTED):
            message = f"All {world:,} ranks were given the very same batch at {steps:,} steps in a row"
        else:
            message = f"{capital(who(first))} were given the very same batch at {steps:,} steps in a row"
            more = len(groups) - 1
            message += f", and {more:,} other group{'s' * (more > 1)} of ranks likewise" if more else ""
        message += ": they compute the same gradient, and the rest of the data is seen less often."
        evidence = {
            "steps": steps,
            "limit": limits.steps,
            "groups": [group[:LISTED] for group in groups[:4]],
            "world": world,
        }
        advice = [
            "Give each rank its share: `DataLoader(..., sampler=DistributedSampler(dataset))`, without `shuffle=True`.",
            "An iterable dataset has to hand its samples out itself: `islice(samples, rank, None, world)`, and within a"
            " rank by worker.",
            "Data that is drawn at random needs another seed on each rank: `torch.manual_seed(seed + rank)`, after the"
            " model was made.",
        ]
        where = Where(phase="data")
        return blamed(limits, reading, Severity.WARNING, message, evidence, advice=advice, rank=first[1], where=where)
