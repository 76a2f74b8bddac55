"""`rank-same-randomness`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.ranks.facts import LISTED, REPLICATED, blamed, capital, count, groups_in, mapping, who
from seismograd.records import Finding, Reading, Severity, Where

_DROPOUT = "dropout leaves out the same units"
_NOISE = "noise, crops or masks that are made of them are the same"


@dataclass(frozen=True)
class RankSameRandomness:
    """Several ranks draw the same random numbers: dropout leaves out the same units on all of them, and noise is alike.

    Why it matters
    --------------
    The ranks together should see as many random masks as they have samples. With the same generator on each, the masks
    repeat from rank to rank, and the noise that dropout and augmentation are for does not average out. Seldom a
    disaster; and it comes with a seed that was set for all ranks alike, so that the models begin alike.

    How it is judged
    ----------------
    The state of torch's generator at the forward pass is the same on two ranks or more at `steps` steps in a row, while
    dropout is active, or while a number or more is drawn for each sample, by a dataset that samples are taken from by
    number, in the loop or in the model. Worth a note only. Not for tensor and pipeline parallel ranks, which need the
    same.

    What to try
    -----------
    Seed all ranks alike before the model is made, and differently after it.

    An example
    ----------

        torch.manual_seed(0)                # the model begins alike on all ranks
        model = DistributedDataParallel(Net())
        torch.manual_seed(1 + rank)         # and what is drawn from here on differs
    """

    id: ClassVar[str] = "rank-same-randomness"
    needs: ClassVar[tuple[str, ...]] = ("facts/ranks",)
    follows: ClassVar[tuple[str, ...]] = ("rank-same-data",)

    steps: int = 5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: RankSameRandomness) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["ranks"], self._detector
        random = mapping(facts, "random")
        groups = [group for group in groups_in(random.get("same")) if len(group) > 1]
        steps = count(random.get("steps"))
        if not groups or not (random.get("dropout") or random.get("noise")) or steps < limits.steps:
            return None
        if facts.get("kind", "ddp") not in REPLICATED:
            return None
        world, first = count(facts.get("world"), 2), groups[0]
        every = len(groups) == 1 and world > 2 and len(first) >= min(world, LISTED)
        doers = f"All {world:,} ranks" if every else capital(who(first))
        message = (
            f"{doers} drew the same random numbers at {steps:,} steps in a row:"
            f" {_DROPOUT if random.get('dropout') else _NOISE} for the samples of each."
        )
        evidence = {
            "steps": steps,
            "limit": limits.steps,
            "groups": [group[:LISTED] for group in groups[:4]],
            "world": world,
        }
        advice = ["Seed each rank differently once the model is made: `torch.manual_seed(seed + rank)`."]
        where = Where(phase="forward") if random.get("dropout") else Where()
        return blamed(limits, reading, Severity.INFO, message, evidence, advice=advice, rank=first[1], where=where)
